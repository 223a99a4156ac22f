//! How MindCluster handles a fault.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A level of the device plugin's `faultCode.json`, from harmless to final; the order is that of
/// `ascend-device-plugin/pkg/common/fault_code.go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nothing is done.
    NotHandleFault,
    /// Told, and handled where the job asks for it (`subHealthyStrategy`).
    SubHealthFault,
    /// The request is done anew.
    RestartRequest,
    /// The job is done anew.
    RestartBusiness,
    /// The NPU is reset once nothing uses it.
    FreeRestartNPU,
    /// The NPU is reset.
    RestartNPU,
    /// No new job gets the NPU.
    PreSeparateNPU,
    /// The NPU is taken out of service.
    SeparateNPU,
    /// The NPU is taken out of service until somebody allows it again.
    ManuallySeparateNPU,
}

impl Level {
    /// Every level, from harmless to final.
    pub const ALL: [Self; 9] = [
        Self::NotHandleFault,
        Self::SubHealthFault,
        Self::RestartRequest,
        Self::RestartBusiness,
        Self::FreeRestartNPU,
        Self::RestartNPU,
        Self::PreSeparateNPU,
        Self::SeparateNPU,
        Self::ManuallySeparateNPU,
    ];

    /// The name that MindCluster's ConfigMaps have.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotHandleFault => "NotHandleFault",
            Self::SubHealthFault => "SubHealthFault",
            Self::RestartRequest => "RestartRequest",
            Self::RestartBusiness => "RestartBusiness",
            Self::FreeRestartNPU => "FreeRestartNPU",
            Self::RestartNPU => "RestartNPU",
            Self::PreSeparateNPU => "PreSeparateNPU",
            Self::SeparateNPU => "SeparateNPU",
            Self::ManuallySeparateNPU => "ManuallySeparateNPU",
        }
    }

    /// The level of that name, with blanks around it left out.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.trim();
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }

    /// Whether ClusterD ends the ranks on a device with such a fault. It passes over `NotHandleFault` and
    /// `PreSeparateNPU`, and looks at `SubHealthFault` only where a job asks for it.
    pub const fn kills(self) -> bool {
        !matches!(self, Self::NotHandleFault | Self::SubHealthFault | Self::PreSeparateNPU)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back() {
        for level in Level::ALL {
            assert_eq!(Level::from_name(level.as_str()), Some(level));
        }
        assert_eq!(Level::from_name(" SeparateNPU "), Some(Level::SeparateNPU));
        assert_eq!(Level::from_name("separateNPU"), None);
    }

    #[test]
    fn all_are_in_order() {
        assert!(Level::ALL.is_sorted());
    }
}
