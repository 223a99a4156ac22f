//! Codes that Swansong gives to what the driver has no code for.

use crate::code::Code;

/// The code with which the device plugin tells of a card that has dropped off the bus: the driver answers -8012, or the
/// device node has gone (`CardDropFaultCode` of `ascend-device-plugin/pkg/common/fault_code.go`).
pub const CARD_DROP: u32 = 0x40F8_4E00;

/// A fault of a node's driver, told by its device nodes and its entry in `/proc/devices`.
///
/// The codes have nine digits in the layout that MindCluster documents for user-defined faults
/// (`docs/zh/scheduling/06_api/04_clusterd/03_public_fault_apis.md`): 1 node, 2 separate, 00, 1 user-defined, a serial
/// number. As numbers they are above 32 bits, where the driver has no codes, and MindCluster's own have another fifth
/// digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DriverFault {
    /// `/dev/davinci_manager` has gone.
    ManagerMissing,
    /// `/dev/hisi_hdc` has gone.
    HdcMissing,
    /// `/dev/devmm_svm` has gone.
    SvmMissing,
    /// The driver has been unloaded.
    NotLoaded,
}

impl DriverFault {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::ManagerMissing, Self::HdcMissing, Self::SvmMissing, Self::NotLoaded];

    /// Its code.
    pub fn code(self) -> Code {
        let number: u64 = match self {
            Self::ManagerMissing => 0x1_2001_1101,
            Self::HdcMissing => 0x1_2001_1102,
            Self::SvmMissing => 0x1_2001_1103,
            Self::NotLoaded => 0x1_2001_1104,
        };
        Code::from_number(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_the_drivers_or_mindclusters() {
        for fault in DriverFault::ALL {
            let code = fault.code();
            assert!(code.number() > u64::from(u32::MAX), "{code}");
            assert_eq!((code.as_str().len(), &code.as_str()[..5]), (9, "12001"), "{code}");
            assert_eq!(code.as_str().parse(), Ok(code));
        }
    }
}
