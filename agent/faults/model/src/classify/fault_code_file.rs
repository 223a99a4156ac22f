use std::collections::BTreeMap;

use super::Classifier;
use crate::code::{Code, NETWORK_CODES};
use crate::json::{self, ParseError, Warning, Warnings};
use crate::level::Level;

/// The kind of codes that a key lists.
#[derive(Clone, Copy)]
enum Kind {
    /// Faults of devices and networks.
    Chip,
    /// Faults of devices only.
    ChipOnly,
    Network,
}

/// `faultFileInfo` of `ascend-device-plugin/pkg/common/fault_code.go`.
const KEYS: [(&str, Level, Kind); 12] = [
    ("NotHandleFaultCodes", Level::NotHandleFault, Kind::Chip),
    ("RestartRequestCodes", Level::RestartRequest, Kind::ChipOnly),
    ("RestartBusinessCodes", Level::RestartBusiness, Kind::ChipOnly),
    ("FreeRestartNPUCodes", Level::FreeRestartNPU, Kind::ChipOnly),
    ("RestartNPUCodes", Level::RestartNPU, Kind::ChipOnly),
    ("SeparateNPUCodes", Level::SeparateNPU, Kind::Chip),
    ("PreSeparateNPUCodes", Level::PreSeparateNPU, Kind::Chip),
    ("SubHealthFaultCodes", Level::SubHealthFault, Kind::Chip),
    ("NotHandleFaultNetworkCodes", Level::NotHandleFault, Kind::Network),
    ("PreSeparateNPUNetworkCodes", Level::PreSeparateNPU, Kind::Network),
    ("SeparateNPUNetworkCodes", Level::SeparateNPU, Kind::Network),
    ("SubHealthFaultNetworkCodes", Level::SubHealthFault, Kind::Network),
];

pub(super) fn read(text: &str) -> Result<(Classifier, Vec<Warning>), ParseError> {
    let mut warnings = Warnings::default();
    // As in Go, keys match in any case, and the last duplicate applies.
    let mut lists = [const { None }; KEYS.len()];
    for (name, value) in json::object(text)? {
        match KEYS.iter().position(|(key, ..)| key.eq_ignore_ascii_case(&name)) {
            Some(index) => lists[index] = Some(value),
            None => warnings.push(Warning::UnknownKey { key: json::excerpt(&name) }),
        }
    }
    let mut classifier = Classifier { chip: BTreeMap::new(), network: BTreeMap::new() };
    for ((key, level, kind), list) in KEYS.into_iter().zip(lists) {
        let Some(list) = list else { continue };
        for code in json::codes(key, &list, &mut warnings)? {
            classifier.add(key, level, kind, code, &mut warnings);
        }
    }
    if classifier.is_empty() {
        warnings.push(Warning::Empty);
    }
    Ok((classifier, warnings.into_vec()))
}

impl Classifier {
    fn add(&mut self, key: &'static str, level: Level, kind: Kind, code: Code, warnings: &mut Warnings) {
        match (NETWORK_CODES.contains(&code.number()), kind) {
            (true, Kind::ChipOnly) => {
                set_level(&mut self.network, &code, Level::NotHandleFault, warnings);
                warnings.push(Warning::LevelNotForNetwork { key, code });
            }
            (true, Kind::Chip | Kind::Network) => set_level(&mut self.network, &code, level, warnings),
            (false, Kind::Chip | Kind::ChipOnly) => set_level(&mut self.chip, &code, level, warnings),
            (false, Kind::Network) => warnings.push(Warning::NotNetworkFault { key, code }),
        }
    }
}

/// Sets the level of a code, or keeps a higher one.
fn set_level(levels: &mut BTreeMap<u64, Level>, code: &Code, level: Level, warnings: &mut Warnings) {
    let Some(known) = levels.insert(code.number(), level).filter(|known| *known != level) else { return };
    let (lower, higher) = (known.min(level), known.max(level));
    levels.insert(code.number(), higher);
    warnings.push(Warning::ConflictingLevels { code: code.clone(), lower, higher });
}
