//! From a code to the level at which MindCluster handles it.

mod fault_code_file;
mod selector;

use std::collections::BTreeMap;
use std::fmt;

pub use self::selector::{ClassifierSelector, ClassifierSource, ReloadResult};
use crate::code::Code;
use crate::json::{ParseError, Warning};
use crate::level::Level;
use crate::source_update::Severity;

/// The codes that are faults of a device's network, not of the device: a RoCE link that is down and its kin
/// (`NetworkFaultCodes` of `ascend-device-plugin/pkg/common/fault_code.go`).
pub const NETWORK_CODES: [u64; 4] = [0x8107_8603, 0x8107_8607, 0x1_1000_0002, 0x1_1000_1024];

/// Codes whose level is documented, for clusters that say nothing. The device plugin's own `faultCode.json` of 804
/// entries isn't copied here: it changes with every release, and what it says is asked of the cluster.
const DOCUMENTED: [(u64, Level); 4] = [
    // A RoCE link is down. Only when that lasts does the device plugin raise it.
    (0x8107_8603, Level::NotHandleFault),
    // Multi-bit error of the HBM.
    (0x80E0_1801, Level::RestartBusiness),
    // The card has dropped off the bus.
    (0x40F8_4E00, Level::RestartNPU),
    // A reset has ended.
    (0x8C2F_A009, Level::NotHandleFault),
];

/// Tells the level of a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classifier {
    /// Of faults of a device.
    chip: BTreeMap<u64, Level>,
    /// Of [`NETWORK_CODES`].
    network: BTreeMap<u64, Level>,
}

/// Why a code has its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LevelReason {
    /// It is listed with it.
    Listed,
    /// It isn't listed and has this severity.
    Severity(Severity),
    /// It isn't listed, and its severity isn't known either.
    Unknown,
    /// It isn't listed and is a fault of the network.
    UnlistedNetwork,
}

impl Classifier {
    /// Without any file: the few codes whose level is documented, and the severity.
    pub fn documented() -> Self {
        let (network, chip) = DOCUMENTED.into_iter().partition(|(number, _)| NETWORK_CODES.contains(number));
        Self { chip, network }
    }

    /// From the text of a `faultCode.json`, which says everything: nothing is added to it.
    ///
    /// Keys are those of the device plugin's file, upper or lower case: a list of codes a level, and lists of network
    /// faults. Codes may have blanks around them, be in lower case and be there more than once.
    ///
    /// # Errors
    ///
    /// When it isn't such a file. What is only odd is a warning.
    pub fn from_json(text: &str) -> Result<(Self, Vec<Warning>), ParseError> {
        fault_code_file::read(text)
    }

    /// The level of a code. `severity` is the driver's, if it is known; it matters for codes that aren't listed:
    /// `GetFaultTypeByCode`, `getFaultTypeBySeverity` and `GetNetworkFaultTypeByCode` of the device plugin.
    pub fn level(&self, code: &Code, severity: Option<Severity>) -> (Level, LevelReason) {
        let number = code.number();
        let is_network = NETWORK_CODES.contains(&number);
        let listed = if is_network { &self.network } else { &self.chip };
        if let Some(level) = listed.get(&number) {
            return (*level, LevelReason::Listed);
        }
        match severity {
            _ if is_network => (Level::PreSeparateNPU, LevelReason::UnlistedNetwork),
            None => (Level::SeparateNPU, LevelReason::Unknown),
            Some(severity) if severity > Severity::Minor => {
                (Level::SeparateNPU, LevelReason::Severity(severity))
            }
            Some(severity) => (Level::NotHandleFault, LevelReason::Severity(severity)),
        }
    }

    /// How many codes are listed.
    pub fn len(&self) -> usize {
        self.chip.len() + self.network.len()
    }

    /// Whether no code is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LevelReason {
    /// A word for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Severity(_) => "severity",
            Self::Unknown => "nothing-known",
            Self::UnlistedNetwork => "unlisted-network",
        }
    }
}

impl fmt::Display for LevelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed => f.write_str("it is listed with this level"),
            Self::Severity(severity) => {
                write!(f, "it isn't listed, and the driver calls it {}", severity.as_str())
            }
            Self::Unknown => f.write_str("it isn't listed, and its severity isn't known"),
            Self::UnlistedNetwork => f.write_str("it is a network fault that isn't listed"),
        }
    }
}

#[cfg(test)]
mod tests;
