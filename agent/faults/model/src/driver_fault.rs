//! Codes that Swansong assigns to faults for which the driver has none.

use strum::VariantArray;

use crate::code::Code;

/// The device plugin's code for a card that dropped off the bus: the driver answers -8012, or the device node is missing
/// (`CardDropFaultCode` of `ascend-device-plugin/pkg/common/fault_code.go`).
pub const CARD_DROP: u32 = 0x40F8_4E00;

/// A fault of a node's driver, detected by its device nodes and its entry in `/proc/devices`.
///
/// The codes have nine digits in the layout that MindCluster documents for user-defined faults
/// (`docs/zh/scheduling/06_api/04_clusterd/03_public_fault_apis.md`): 1 node, 2 separate, 00, 1 user-defined, a serial
/// number. As numbers they exceed 32 bits, the range of the driver's codes; MindCluster's own have another fifth digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, VariantArray)]
pub enum DriverFault {
    /// `/dev/davinci_manager` is missing.
    ManagerMissing,
    /// `/dev/hisi_hdc` is missing.
    HdcMissing,
    /// `/dev/devmm_svm` is missing.
    SvmMissing,
    /// The driver is unloaded.
    NotLoaded,
}

impl DriverFault {
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
    fn codes_collide_with_none_of_the_driver_or_mindcluster() {
        for fault in DriverFault::VARIANTS {
            let code = fault.code();
            assert!(code.number() > u64::from(u32::MAX), "{code}");
            assert_eq!((code.as_str().len(), &code.as_str()[..5]), (9, "12001"), "{code}");
            assert_eq!(code.as_str().parse(), Ok(code));
        }
    }
}
