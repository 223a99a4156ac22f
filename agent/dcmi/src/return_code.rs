//! What the functions of libdcmi.so return.

use std::ffi::c_int;
use std::fmt;

/// A return code other than 0: the table of `ascend-common/devmanager/dcmi/common.go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReturnCode {
    /// -8001.
    BadParameter,
    /// -8002.
    NotPermitted,
    /// -8003.
    Memory,
    /// -8004.
    SecureFunction,
    /// -8005: also what is said while another process or virtual machine holds the device.
    Internal,
    /// -8006.
    TimedOut,
    /// -8007.
    BadDevice,
    /// -8008.
    NoDevice,
    /// -8009.
    Ioctl,
    /// -8010.
    Send,
    /// -8011.
    Receive,
    /// -8012: of a device that was there, MindCluster reads that it dropped off.
    NotReady,
    /// -8013.
    NotInContainer,
    /// -8014.
    FileOperation,
    /// -8015.
    ResetFailed,
    /// -8016.
    ResetCancelled,
    /// -8017.
    Upgrading,
    /// -8020.
    Busy,
    /// -8022.
    Partition,
    /// -8023.
    ConfigurationMissing,
    /// -8255.
    Unsupported,
    /// Any other.
    Other(c_int),
}

impl ReturnCode {
    /// All that have a name.
    pub const NAMED: [Self; 21] = [
        Self::BadParameter,
        Self::NotPermitted,
        Self::Memory,
        Self::SecureFunction,
        Self::Internal,
        Self::TimedOut,
        Self::BadDevice,
        Self::NoDevice,
        Self::Ioctl,
        Self::Send,
        Self::Receive,
        Self::NotReady,
        Self::NotInContainer,
        Self::FileOperation,
        Self::ResetFailed,
        Self::ResetCancelled,
        Self::Upgrading,
        Self::Busy,
        Self::Partition,
        Self::ConfigurationMissing,
        Self::Unsupported,
    ];

    /// The code, unless all went well.
    pub fn check(number: c_int) -> Result<(), Self> {
        if number == 0 {
            return Ok(());
        }
        let named = Self::NAMED.into_iter().find(|code| code.number() == number);
        Err(named.unwrap_or(Self::Other(number)))
    }

    /// The number.
    pub const fn number(self) -> c_int {
        match self {
            Self::BadParameter => -8001,
            Self::NotPermitted => -8002,
            Self::Memory => -8003,
            Self::SecureFunction => -8004,
            Self::Internal => -8005,
            Self::TimedOut => -8006,
            Self::BadDevice => -8007,
            Self::NoDevice => -8008,
            Self::Ioctl => -8009,
            Self::Send => -8010,
            Self::Receive => -8011,
            Self::NotReady => -8012,
            Self::NotInContainer => -8013,
            Self::FileOperation => -8014,
            Self::ResetFailed => -8015,
            Self::ResetCancelled => -8016,
            Self::Upgrading => -8017,
            Self::Busy => -8020,
            Self::Partition => -8022,
            Self::ConfigurationMissing => -8023,
            Self::Unsupported => -8255,
            Self::Other(number) => number,
        }
    }

    /// Whether asking again is in vain: this product, or this container, will never answer otherwise.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::NotPermitted | Self::NotInContainer | Self::Unsupported)
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::BadParameter => "bad parameter",
            Self::NotPermitted => "not permitted; the vendor's library wants root",
            Self::Memory => "out of memory",
            Self::SecureFunction => "a secure function failed",
            Self::Internal => "internal error; is the device held by another container or virtual machine?",
            Self::TimedOut => "timed out",
            Self::BadDevice => "no such device id",
            Self::NoDevice => "no device; is /dev mounted into this container?",
            Self::Ioctl => "the driver refused (ioctl)",
            Self::Send => "sending to the device failed",
            Self::Receive => "receiving from the device failed",
            Self::NotReady => "the device isn't ready or has dropped off",
            Self::NotInContainer => "not allowed in this container; it has to be privileged",
            Self::FileOperation => "a file operation failed",
            Self::ResetFailed => "reset failed",
            Self::ResetCancelled => "reset cancelled",
            Self::Upgrading => "being upgraded",
            Self::Busy => "busy",
            Self::Partition => "partition error",
            Self::ConfigurationMissing => "configuration missing",
            Self::Unsupported => "not supported by this product",
            Self::Other(_) => "not documented",
        }
    }
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number(), self.meaning())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_one_name() {
        for code in ReturnCode::NAMED {
            assert_eq!(ReturnCode::check(code.number()), Err(code));
            assert!(!code.to_string().contains("not documented"), "{code}");
        }
        assert_eq!(ReturnCode::check(0), Ok(()));
        assert_eq!(ReturnCode::check(-8018), Err(ReturnCode::Other(-8018)));
        assert_eq!(ReturnCode::check(c_int::MIN), Err(ReturnCode::Other(c_int::MIN)));
    }

    #[test]
    fn what_passes_by_is_asked_again() {
        let last: Vec<c_int> =
            ReturnCode::NAMED.into_iter().filter(|code| code.is_final()).map(ReturnCode::number).collect();
        assert_eq!(last, [-8002, -8013, -8255]);
    }
}
