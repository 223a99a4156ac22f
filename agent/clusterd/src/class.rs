//! What ClusterD is to do with a fault.
//!
//! ClusterD decides by the code alone: each code stands in one of the lists of `publicFaultCode`. The layout of a code is
//! that of `docs/zh/scheduling/06_api/04_clusterd/03_public_fault_apis.md` of MindCluster: digit 1 is the type
//! (0 chip, 1 node), digit 2 the level (2 separate, 1 sub-health, 0 not handled), digits 3 and 4 are `00`, digit 5 is 1
//! for codes that users define, digits 6 to 9 are a serial number.

use serde::{Deserialize, Serialize};

/// Our name in `publicFaultResource`.
pub const RESOURCE: &str = "swansong";

/// What ClusterD does with a fault; each has a code of Swansong's own in `publicCustomization.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Ranks on the device are ended, the job recovers or dumps (`SeparateNPU`).
    ChipSeparate,
    /// Handled where the job asks for it (`SubHealthFault`).
    ChipSubHealth,
    /// As `ChipSeparate`, for all devices of the node.
    NodeSeparate,
    /// As `ChipSubHealth`, for the node.
    NodeSubHealth,
    /// Told and nothing else (`NotHandleFault`).
    Notice,
}

impl Class {
    /// Every class, from the worst to the most harmless.
    pub const ALL: [Self; 5] =
        [Self::ChipSeparate, Self::NodeSeparate, Self::ChipSubHealth, Self::NodeSubHealth, Self::Notice];

    /// Its code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::ChipSeparate => "020011001",
            Self::ChipSubHealth => "010011001",
            Self::NodeSeparate => "120011001",
            Self::NodeSubHealth => "110011001",
            Self::Notice => "000011001",
        }
    }

    /// The class that a code is of.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }

    /// The list of `publicFaultCode` that its code belongs to.
    pub const fn list(self) -> &'static str {
        match self {
            Self::ChipSeparate | Self::NodeSeparate => "SeparateNPUCodes",
            Self::ChipSubHealth | Self::NodeSubHealth => "SubHealthFaultCodes",
            Self::Notice => "NotHandleFaultCodes",
        }
    }

    /// What it means, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::ChipSeparate => "an NPU is lost: its ranks are ended, and the job recovers or dumps",
            Self::NodeSeparate => "a node is lost: as an NPU, for all of its NPUs",
            Self::ChipSubHealth => "an NPU is unwell: handled where the job says so (subHealthyStrategy)",
            Self::NodeSubHealth => "a node is unwell: handled where the job says so (subHealthyStrategy)",
            Self::Notice => "something happened: shown, and nothing is done",
        }
    }

    /// Whether ClusterD ends ranks for it without being asked to.
    pub const fn kills(self) -> bool {
        matches!(self, Self::ChipSeparate | Self::NodeSeparate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_laid_out_as_documented() {
        for class in Class::ALL {
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
            assert_eq!(Class::from_code(class.code()), Some(class));
        }
        assert_eq!(Class::from_code("020001001"), None, "that is one of MindCluster's own");
    }
}
