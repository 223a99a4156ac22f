//! Return codes of libdcmi.so.

use std::ffi::c_int;
use std::fmt;

/// A return code other than 0; the meanings are those of `ascend-common/devmanager/dcmi/common.go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReturnCode(c_int);

impl ReturnCode {
    /// The device isn't ready. MindCluster concludes from it that a device which was present dropped off the bus.
    pub const NOT_READY: Self = Self(-8012);

    /// The code of a failed call; 0 is success.
    pub const fn check(number: c_int) -> Result<(), Self> {
        if number == 0 { Ok(()) } else { Err(Self(number)) }
    }

    pub const fn number(self) -> c_int {
        self.0
    }

    /// Whether a retry is useless: this product, or this container, never supports the call.
    pub const fn is_final(self) -> bool {
        matches!(self.0, -8002 | -8013 | -8255)
    }

    const fn meaning(self) -> &'static str {
        match self.0 {
            -8001 => "bad parameter",
            -8002 => "not permitted; the vendor's library needs root",
            -8003 => "out of memory",
            -8004 => "a secure function failed",
            -8005 => "internal error; is the device held by another container or virtual machine?",
            -8006 => "timed out",
            -8007 => "no such device id",
            -8008 => "no device; is /dev mounted into this container?",
            -8009 => "the driver refused (ioctl)",
            -8010 => "sending to the device failed",
            -8011 => "receiving from the device failed",
            -8012 => "the device isn't ready or has dropped off",
            -8013 => "not allowed in this container; it has to be privileged",
            -8014 => "a file operation failed",
            -8015 => "reset failed",
            -8016 => "reset cancelled",
            -8017 => "being upgraded",
            -8020 => "busy",
            -8022 => "partition error",
            -8023 => "configuration missing",
            -8255 => "not supported by this product",
            _ => "not documented",
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
    fn zero_is_success_and_any_other_number_a_code() {
        assert_eq!(ReturnCode::check(0), Ok(()));
        for number in [-8012, -8018, c_int::MIN, 1] {
            assert_eq!(ReturnCode::check(number), Err(ReturnCode(number)));
        }
        assert_eq!(ReturnCode::NOT_READY.to_string(), "-8012 (the device isn't ready or has dropped off)");
        assert_eq!(ReturnCode(-8018).to_string(), "-8018 (not documented)");
    }
}
