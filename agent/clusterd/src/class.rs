//! How ClusterD handles a fault.
//!
//! ClusterD decides by the code alone: each code belongs to one of the lists of `publicFaultCode`. The layout of a code is
//! that of `docs/zh/scheduling/06_api/04_clusterd/03_public_fault_apis.md` of MindCluster: digit 1 is the type
//! (0 chip, 1 node), digit 2 the level (2 separate, 1 sub-health, 0 not handled), digits 3 and 4 are `00`, digit 5 is 1
//! for user-defined codes, digits 6 to 9 are a serial number.

use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Swansong's name in `publicFaultResource`.
pub const RESOURCE: &str = "swansong";

/// How ClusterD handles a fault, in descending severity. Each class has a code in `publicCustomization.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, VariantArray)]
pub enum Class {
    /// Ranks on the device are ended; the job recovers or dumps (`SeparateNPU`).
    ChipSeparate,
    /// As `ChipSeparate`, for all devices of the node.
    NodeSeparate,
    /// Handled where the job asks for it (`SubHealthFault`).
    ChipSubHealth,
    /// As `ChipSubHealth`, for the node.
    NodeSubHealth,
    /// Published without further action (`NotHandleFault`).
    Notice,
}

impl Class {
    /// The fault code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::ChipSeparate => "020011001",
            Self::NodeSeparate => "120011001",
            Self::ChipSubHealth => "010011001",
            Self::NodeSubHealth => "110011001",
            Self::Notice => "000011001",
        }
    }

    /// The class with this code.
    pub(crate) fn of(code: &str) -> Option<Self> {
        Self::VARIANTS.iter().copied().find(|class| class.code() == code)
    }

    /// The list of `publicFaultCode` that the code belongs to.
    pub const fn list(self) -> &'static str {
        match self {
            Self::ChipSeparate | Self::NodeSeparate => "SeparateNPUCodes",
            Self::ChipSubHealth | Self::NodeSubHealth => "SubHealthFaultCodes",
            Self::Notice => "NotHandleFaultCodes",
        }
    }

    /// A description for users.
    pub const fn description(self) -> &'static str {
        match self {
            Self::ChipSeparate => "an NPU is lost: its ranks are ended, and the job recovers or dumps",
            Self::NodeSeparate => "a node is lost: as an NPU, for all of its NPUs",
            Self::ChipSubHealth => {
                "an NPU is degraded: handled where the job asks for it (subHealthyStrategy)"
            }
            Self::NodeSubHealth => {
                "a node is degraded: handled where the job asks for it (subHealthyStrategy)"
            }
            Self::Notice => "something happened: published without further action",
        }
    }

    /// Whether ClusterD ends ranks for such a fault unasked.
    pub const fn kills(self) -> bool {
        matches!(self, Self::ChipSeparate | Self::NodeSeparate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_documented_layout() {
        for class in Class::VARIANTS {
            let code = class.code().as_bytes();
            assert_eq!((code.len(), &code[2..5]), (9, b"001".as_slice()), "{class:?}");
            let chip = matches!(class, Class::ChipSeparate | Class::ChipSubHealth | Class::Notice);
            assert_eq!(code[0], if chip { b'0' } else { b'1' }, "{class:?}");
            let level = match class.list() {
                "SeparateNPUCodes" => b'2',
                "SubHealthFaultCodes" => b'1',
                _ => b'0',
            };
            assert_eq!(code[1], level, "{class:?}");
        }
    }
}
