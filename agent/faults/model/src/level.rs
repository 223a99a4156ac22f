//! How MindCluster handles a fault.

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, VariantArray};

/// A level of the device plugin's `faultCode.json`, from harmless to final, in the order of
/// `ascend-device-plugin/pkg/common/fault_code.go`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    AsRefStr,
    VariantArray,
)]
pub enum Level {
    /// Nothing is done.
    NotHandleFault,
    /// The fault is published and handled where the job asks for it (`subHealthyStrategy`).
    SubHealthFault,
    /// The inference request is repeated.
    RestartRequest,
    /// The job is restarted.
    RestartBusiness,
    /// The NPU is reset as soon as no process uses it.
    FreeRestartNPU,
    /// The NPU is reset.
    RestartNPU,
    /// No new job is scheduled to the NPU.
    PreSeparateNPU,
    /// The NPU is taken out of service.
    SeparateNPU,
    /// The NPU is taken out of service until an administrator releases it.
    ManuallySeparateNPU,
}

impl Level {
    /// Parses a level's name; white space around it is ignored.
    pub fn from_name(name: &str) -> Option<Self> {
        name.trim().parse().ok()
    }

    /// Whether ClusterD ends the ranks on a device with such a fault. It ignores `NotHandleFault` and `PreSeparateNPU`,
    /// and acts on `SubHealthFault` only where a job asks for it.
    pub const fn kills(self) -> bool {
        !matches!(self, Self::NotHandleFault | Self::SubHealthFault | Self::PreSeparateNPU)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for level in Level::VARIANTS {
            assert_eq!(Level::from_name(level.as_ref()), Some(*level));
        }
        assert_eq!(Level::from_name(" SeparateNPU "), Some(Level::SeparateNPU));
        assert_eq!(Level::from_name("separateNPU"), None);
    }
}
