//! From a code to the level at which MindCluster handles it.

mod choice;
mod list;

use std::collections::BTreeMap;
use std::fmt;

pub use self::choice::{Choice, Found, News, Origin};
use crate::code::Code;
use crate::level::Level;
use crate::reading::{Broken, Warning};
use crate::seen::Severity;

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
pub enum Because {
    /// It is listed with it.
    Listed,
    /// It isn't listed and has this severity.
    Severity(Severity),
    /// It isn't listed, and its severity isn't known either.
    NothingKnown,
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
    pub fn from_json(text: &str) -> Result<(Self, Vec<Warning>), Broken> {
        list::read(text)
    }

    /// The level of a code. `severity` is the driver's, if it is known; it matters for codes that aren't listed:
    /// `GetFaultTypeByCode`, `getFaultTypeBySeverity` and `GetNetworkFaultTypeByCode` of the device plugin.
    pub fn level(&self, code: &Code, severity: Option<Severity>) -> (Level, Because) {
        let number = code.number();
        let is_network = NETWORK_CODES.contains(&number);
        let listed = if is_network { &self.network } else { &self.chip };
        if let Some(level) = listed.get(&number) {
            return (*level, Because::Listed);
        }
        match severity {
            _ if is_network => (Level::PreSeparateNPU, Because::UnlistedNetwork),
            None => (Level::SeparateNPU, Because::NothingKnown),
            Some(severity) if severity > Severity::Minor => (Level::SeparateNPU, Because::Severity(severity)),
            Some(severity) => (Level::NotHandleFault, Because::Severity(severity)),
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

impl Because {
    /// A word for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Severity(_) => "severity",
            Self::NothingKnown => "nothing-known",
            Self::UnlistedNetwork => "unlisted-network",
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed => f.write_str("it is listed with this level"),
            Self::Severity(severity) => {
                write!(f, "it isn't listed, and the driver calls it {}", severity.as_str())
            }
            Self::NothingKnown => f.write_str("it isn't listed, and its severity isn't known"),
            Self::UnlistedNetwork => f.write_str("it is a network fault that isn't listed"),
        }
    }
}

#[cfg(test)]
mod tests;
