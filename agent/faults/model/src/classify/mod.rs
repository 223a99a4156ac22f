//! Maps a code to the level at which MindCluster handles it.

mod fault_code_file;
mod selector;

use std::collections::BTreeMap;

pub use self::selector::{ClassifierSelector, ClassifierSource, ReloadResult};
use crate::code::{Code, NETWORK_CODES};
use crate::json::{ParseError, Warning};
use crate::level::Level;
use crate::source_update::Severity;

/// Codes with a documented level, for clusters without a `faultCode.json`. The device plugin's own file of 804 entries
/// isn't copied here, as it changes with every release; it is read from the cluster.
const DOCUMENTED: [(u64, Level); 4] = [
    // A RoCE link is down. The device plugin raises the level only if it lasts.
    (0x8107_8603, Level::NotHandleFault),
    // Multi-bit error of the HBM.
    (0x80E0_1801, Level::RestartBusiness),
    // The card has dropped off the bus.
    (0x40F8_4E00, Level::RestartNPU),
    // A reset has ended.
    (0x8C2F_A009, Level::NotHandleFault),
];

/// Maps fault codes to levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classifier {
    /// Codes of the devices themselves.
    chip: BTreeMap<u64, Level>,
    /// Codes among [`NETWORK_CODES`].
    network: BTreeMap<u64, Level>,
}

/// Why a code has its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum LevelReason {
    /// The code is listed with this level.
    Listed,
    /// The code isn't listed; the level follows from this severity.
    Severity(Severity),
    /// The code isn't listed and its severity is unknown.
    Unknown,
    /// The code isn't listed and is a network fault.
    UnlistedNetwork,
}

impl Classifier {
    /// The classifier without any file: the few codes whose level is documented; all others by severity.
    pub fn documented() -> Self {
        let (network, chip) = DOCUMENTED.into_iter().partition(|(number, _)| NETWORK_CODES.contains(number));
        Self { chip, network }
    }

    /// Parses a `faultCode.json`; the documented codes aren't added to it.
    ///
    /// Keys are those of the device plugin's file in any case: one list of codes per level, and lists of network faults.
    /// Codes may be padded with white space, in lower case and repeated.
    ///
    /// # Errors
    ///
    /// When the text isn't such a file. Entries without effect are warnings.
    pub fn from_json(text: &str) -> Result<(Self, Vec<Warning>), ParseError> {
        fault_code_file::read(text)
    }

    /// The level of a code and why it has it. The driver's `severity` decides for codes that aren't listed, as in
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

    /// The number of listed codes.
    pub fn len(&self) -> usize {
        self.chip.len() + self.network.len()
    }

    /// Whether no code is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
