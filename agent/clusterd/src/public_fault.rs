//! A fault as ClusterD accepts it.
//!
//! Source: `docs/zh/scheduling/06_api/04_clusterd/03_public_fault_apis.md` and
//! `clusterd/pkg/application/publicfault/checker.go` of MindCluster. ClusterD drops a fault that violates a rule,
//! logs that and answers 0 if another fault of the message is valid. Therefore only valid faults are sent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strum::Display;
use swansong_fault_model::Assertion;

use crate::class::Class;
use crate::text;

/// The limit of faults in a message.
pub const MAX_BATCH: usize = 100;
/// The limit of devices of a fault.
const MAX_DEVICES: usize = 32;
/// The highest physical id.
const MAX_DEVICE: u32 = 31;
/// The limit of a description, in characters.
const MAX_DESCRIPTION: usize = 512;
/// The limit of pairs in a location.
const MAX_LOCATION: usize = 10;
/// The limit of a key in a location, in bytes.
const MAX_KEY: usize = 16;
/// The limit of a value in a location, in bytes.
const MAX_VALUE: usize = 128;
/// 2025-01-01T00:00:00Z in milliseconds since 1970; ClusterD rejects earlier times.
const EARLIEST: u64 = 1_735_689_600_000;
/// The last time with thirteen digits.
const LATEST: u64 = 9_999_999_999_999;

/// The kind of the affected resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display)]
pub enum FaultType {
    #[serde(rename = "NPU")]
    #[strum(serialize = "NPU")]
    Npu,
    /// The node as a whole.
    Node,
}

/// A fault as ClusterD accepts it. [`PublicFault::finish`] makes the texts valid; [`PublicFault::validate`] checks one from
/// another source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublicFault {
    /// The id, the same in occurrence and recovery; 8–128 letters, digits, `-`, `_`, `.`. See [`swansong_fault_model::fault_id()`].
    pub fault_id: String,
    /// The kind of the affected resource.
    pub fault_type: FaultType,
    /// How ClusterD handles it.
    pub class: Class,
    /// When the fault *occurred*, also in a recovery, in milliseconds since 1970.
    pub fault_time: u64,
    /// Whether the fault began, ended or is a notice.
    pub assertion: Assertion,
    /// The location for users: at most ten pairs; keys of at most 16, values of at most 128 bytes.
    pub location: BTreeMap<String, String>,
    /// The node's name, never empty: ClusterD would pick another node.
    pub node: String,
    /// The physical ids of the devices: at least one, 0–31, without duplicates.
    pub devices: Vec<u32>,
    /// A description for users: at most 512 characters, no white space except spaces.
    pub description: String,
}

/// A fault violates a rule of ClusterD.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ClusterD would drop fault `{fault_id}`: {field} {rule}")]
pub struct InvalidFault {
    /// The fault's id, at most 128 characters of it.
    pub fault_id: String,
    pub field: Field,
    pub rule: &'static str,
}

/// A field of a public fault, displayed by its documented name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
#[strum(serialize_all = "camelCase")]
pub enum Field {
    FaultId,
    FaultTime,
    FaultLocation,
    #[strum(to_string = "influence.nodeName")]
    NodeName,
    #[strum(to_string = "influence.deviceIds")]
    DeviceIds,
    Description,
}

impl PublicFault {
    /// Sorts the devices, and shortens the texts for users to what ClusterD accepts. All other values have to be valid.
    pub fn finish(mut self) -> Result<Self, InvalidFault> {
        self.devices.sort_unstable();
        self.location = std::mem::take(&mut self.location)
            .into_iter()
            .take(MAX_LOCATION)
            .map(|(key, value)| {
                (text::one_line_of_bytes(&key, MAX_KEY), text::one_line_of_bytes(&value, MAX_VALUE))
            })
            .collect();
        self.description = text::one_line(&self.description, MAX_DESCRIPTION);
        self.validate().map(|()| self)
    }

    /// Checks ClusterD's rules, and that the node has a name.
    pub fn validate(&self) -> Result<(), InvalidFault> {
        let rules = [
            (Field::FaultId, is_id(&self.fault_id), "has to be 8 to 128 letters, digits, `-`, `_`, `.`"),
            (
                Field::FaultTime,
                (EARLIEST..=LATEST).contains(&self.fault_time),
                "has to be in milliseconds and not before 2025",
            ),
            (
                Field::FaultLocation,
                is_location(&self.location),
                "has to be at most 10 pairs, keys of at most 16 and values of at most 128 bytes",
            ),
            (
                Field::NodeName,
                is_node_name(&self.node),
                "has to be a node's name: 1 to 253 of a-z, 0-9, `-`, `.`",
            ),
            (Field::DeviceIds, are_devices(&self.devices), "has to be 1 to 32 ids of 0 to 31, each once"),
            (
                Field::Description,
                is_description(&self.description),
                "has to be at most 512 characters without white space except spaces",
            ),
        ];
        match rules.into_iter().find(|(_, is_valid, _)| !is_valid) {
            Some((field, _, rule)) => {
                let fault_id = text::one_line(&self.fault_id, 128);
                Err(InvalidFault { fault_id, field, rule })
            }
            None => Ok(()),
        }
    }

    /// The same fault with another assertion; its time remains that of the occurrence.
    #[must_use]
    pub fn with_assertion(&self, assertion: Assertion) -> Self {
        Self { assertion, ..self.clone() }
    }
}

/// Matches `^[a-zA-Z0-9-_.]{8,128}$` as ClusterD does.
pub(crate) fn is_id(id: &str) -> bool {
    (8..=128).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Matches `^[a-z0-9]([a-z0-9-.]{0,251}[a-z0-9])?$` as ClusterD does.
fn is_node_name(name: &str) -> bool {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let edges = bytes.first().is_some_and(edge) && bytes.last().is_some_and(edge);
    edges && name.len() <= 253 && bytes.iter().all(|byte| edge(byte) || matches!(byte, b'-' | b'.'))
}

fn is_location(location: &BTreeMap<String, String>) -> bool {
    let fits = |(key, value): (&String, &String)| key.len() <= MAX_KEY && value.len() <= MAX_VALUE;
    location.len() <= MAX_LOCATION && location.iter().all(fits)
}

fn are_devices(devices: &[u32]) -> bool {
    let mut found = 0_u32;
    let new = |&device: &u32| {
        // 0 for ids above 31, as `1 << device` exists for 0 to 31 only.
        let bit = 1_u32.checked_shl(device).filter(|_| device <= MAX_DEVICE).unwrap_or_default();
        let new = bit & !found != 0;
        found |= bit;
        new
    };
    (1..=MAX_DEVICES).contains(&devices.len()) && devices.iter().all(new)
}

/// `^[\S ]{0,512}$`, and no control character or Unicode white space either.
fn is_description(text: &str) -> bool {
    let allowed = |c: char| c == ' ' || !(c.is_whitespace() || c.is_control());
    text.chars().count() <= MAX_DESCRIPTION && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn valid_fault() -> PublicFault {
        PublicFault {
            fault_id: "worker-7.npu3.80E01801.1756000000000".to_owned(),
            fault_type: FaultType::Npu,
            class: Class::ChipSeparate,
            fault_time: 1_756_000_000_000,
            assertion: Assertion::Occur,
            location: BTreeMap::from([("npu".to_owned(), "3".to_owned())]),
            node: "worker-7".to_owned(),
            devices: vec![3],
            description: "heartbeat of the device is lost".to_owned(),
        }
    }

    #[test]
    fn reports_the_field_of_each_violation() {
        type Change = fn(&mut PublicFault);
        let cases: [(Field, &[Change]); 6] = [
            (
                Field::FaultId,
                &[
                    |f| f.fault_id = "a".repeat(7),
                    |f| f.fault_id = "a".repeat(129),
                    |f| f.fault_id = "abcdefg:h".to_owned(),
                    |f| f.fault_id = "abcdefg/h".to_owned(),
                    |f| f.fault_id = "abcdefgh\n".to_owned(),
                    |f| f.fault_id = "abcdefgé".to_owned(),
                    |f| f.fault_id.clear(),
                ],
            ),
            (
                Field::FaultTime,
                &[|f| f.fault_time /= 1000, |f| f.fault_time = EARLIEST - 1, |f| f.fault_time = LATEST + 1],
            ),
            (
                Field::FaultLocation,
                &[
                    |f| f.location = (0..11).map(|i| (i.to_string(), String::new())).collect(),
                    |f| f.location = BTreeMap::from([("k".repeat(17), String::new())]),
                    |f| f.location = BTreeMap::from([(String::new(), "v".repeat(129))]),
                    |f| f.location = BTreeMap::from([("键".repeat(6), String::new())]),
                ],
            ),
            (
                Field::NodeName,
                &[
                    |f| f.node.clear(),
                    |f| f.node = "a".repeat(254),
                    |f| f.node = "Worker".to_owned(),
                    |f| f.node = "-a".to_owned(),
                    |f| f.node = "a.".to_owned(),
                    |f| f.node = "a b".to_owned(),
                    |f| f.node = " ".to_owned(),
                ],
            ),
            (
                Field::DeviceIds,
                &[
                    |f| f.devices.clear(),
                    |f| f.devices = vec![32],
                    |f| f.devices = vec![u32::MAX],
                    |f| f.devices = vec![1, 2, 1],
                    |f| f.devices = (0..33).collect(),
                ],
            ),
            (
                Field::Description,
                &[
                    |f| f.description = "d".repeat(513),
                    |f| f.description = "a\nb".to_owned(),
                    |f| f.description = "a\tb".to_owned(),
                ],
            ),
        ];
        assert_eq!(valid_fault().validate(), Ok(()));
        for (field, changes) in cases {
            for (i, change) in changes.iter().enumerate() {
                let mut fault = valid_fault();
                change(&mut fault);
                let error = fault.validate().expect_err(&format!("{field} {i} violates a rule"));
                assert_eq!(error.field, field, "{i}: {error}");
            }
        }
    }

    #[test]
    fn accepts_the_limits() {
        let changes: [fn(&mut PublicFault); 12] = [
            |f| f.fault_id = "a-_.A0zZ".to_owned(),
            |f| f.fault_id = "a".repeat(128),
            |f| f.fault_time = EARLIEST,
            |f| f.fault_time = LATEST,
            |f| f.location = (0..10).map(|i| (format!("{i:016}"), "v".repeat(128))).collect(),
            |f| f.location.clear(),
            |f| f.location = BTreeMap::from([("npu".to_owned(), String::new())]),
            |f| f.node = "a".to_owned(),
            |f| f.node = "a".repeat(253),
            |f| f.devices = (0..32).collect(),
            |f| f.description.clear(),
            |f| f.description = "障".repeat(512),
        ];
        for (i, change) in changes.iter().enumerate() {
            let mut fault = valid_fault();
            change(&mut fault);
            assert_eq!(fault.validate(), Ok(()), "{i}");
        }
    }

    #[test]
    fn recovery_keeps_the_time_of_the_occurrence() {
        let recovery = valid_fault().with_assertion(Assertion::Recover);
        assert_eq!(recovery, PublicFault { assertion: Assertion::Recover, ..valid_fault() });
    }

    #[test]
    fn json_round_trip() {
        let json = serde_json::to_string(&valid_fault()).expect("JSON");
        assert_eq!(serde_json::from_str::<PublicFault>(&json).expect("a fault"), valid_fault());
    }

    proptest! {
        #[test]
        fn any_texts_for_users_give_a_valid_fault(
            description in any::<String>(),
            location in prop::collection::btree_map(any::<String>(), any::<String>(), 0..14),
            mut devices in prop::collection::btree_set(0u32..32, 1..=32).prop_map(Vec::from_iter),
        ) {
            devices.reverse();
            let fault = PublicFault { location, devices, description, ..valid_fault() };
            let fault = fault.finish().expect("the rest is valid");
            prop_assert_eq!(fault.validate(), Ok(()));
            prop_assert!(fault.devices.is_sorted());
        }
    }
}
