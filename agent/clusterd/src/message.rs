//! Messages to ClusterD.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::class::RESOURCE;
use crate::public_fault::{InvalidFault, MAX_BATCH, PublicFault};

/// The only version of the message format.
pub const VERSION: &str = "1.0";

/// Why a batch can't be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// ClusterD refuses a message without faults.
    #[error("there are no faults to send")]
    Empty,
    /// ClusterD refuses a message with more than [`MAX_BATCH`] faults.
    #[error("{0} faults are more than the {MAX_BATCH} that ClusterD takes in one message")]
    TooMany(usize),
    /// A fault violates a rule; ClusterD would silently drop it.
    #[error(transparent)]
    Invalid(#[from] InvalidFault),
}

/// A message to ClusterD with 1 to [`MAX_BATCH`] valid faults.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    faults: &'a [PublicFault],
    timestamp: u64,
}

impl<'a> Message<'a> {
    /// Creates a message that is sent at `now`, in milliseconds since 1970.
    pub fn new(faults: &'a [PublicFault], now: u64) -> Result<Self, InvalidBatch> {
        match faults.len() {
            0 => return Err(InvalidBatch::Empty),
            1..=MAX_BATCH => {}
            more => return Err(InvalidBatch::TooMany(more)),
        }
        faults.iter().try_for_each(PublicFault::validate)?;
        // ClusterD refuses the whole message if the timestamp is out of range, as with a clock that is off by years.
        let occurred = faults.iter().map(|fault| fault.fault_time).max().unwrap_or(now);
        let timestamp = if (occurred..10_000_000_000_000).contains(&now) { now } else { occurred };
        Ok(Self { faults, timestamp })
    }

    /// The message's id: a hash of its contents and timestamp, by which ClusterD's log and ours can be joined.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.timestamp.to_be_bytes());
        for fault in self.faults {
            hash.update(fault.fault_id.as_bytes());
            hash.update(fault.assertion.as_ref());
        }
        let mut id = format!("{RESOURCE}-");
        for byte in hash.finalize().iter().take(12) {
            // Writing to a String can't fail.
            let _ = write!(id, "{byte:02x}");
        }
        id
    }

    pub const fn faults(&self) -> &'a [PublicFault] {
        self.faults
    }

    /// When the message is sent, in milliseconds since 1970.
    pub const fn timestamp(&self) -> u64 {
        self.timestamp
    }

    /// The message as JSON, for a ConfigMap; the fields are those of the protobuf message.
    pub fn to_json(&self) -> String {
        let faults: Vec<_> = self.faults.iter().map(fault_to_json).collect();
        let message = json!({
            "id": self.id(),
            "timestamp": self.timestamp,
            "version": VERSION,
            "resource": RESOURCE,
            "faults": faults,
        });
        message.to_string()
    }
}

fn fault_to_json(fault: &PublicFault) -> Value {
    json!({
        "faultId": fault.fault_id,
        "faultType": fault.fault_type,
        "faultCode": fault.class.code(),
        "faultTime": fault.fault_time,
        "assertion": fault.assertion,
        "faultLocation": fault.location,
        "influence": [{"nodeName": fault.node, "deviceIds": fault.devices}],
        "description": fault.description,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swansong_fault_model::Assertion;

    use super::*;
    use crate::class::Class;
    use crate::public_fault::{FaultType, Field, is_id};

    const NOW: u64 = 1_756_000_001_000;

    fn fault(i: u32) -> PublicFault {
        PublicFault {
            fault_id: format!("worker-7.npu{i}.1.1756000000000"),
            fault_type: FaultType::Npu,
            class: Class::ChipSeparate,
            fault_time: 1_756_000_000_000,
            assertion: Assertion::Occur,
            location: BTreeMap::from([("npu".to_owned(), i.to_string())]),
            node: "worker-7".to_owned(),
            devices: vec![i % 32],
            description: "gone".to_owned(),
        }
    }

    #[test]
    fn json_has_the_documented_names() {
        let faults = [fault(3)];
        let message = Message::new(&faults, NOW).expect("valid");
        let json: serde_json::Value = serde_json::from_str(&message.to_json()).expect("JSON");
        let expected = json!({
            "id": message.id(),
            "timestamp": 1_756_000_001_000_u64,
            "version": "1.0",
            "resource": "swansong",
            "faults": [{
                "faultId": "worker-7.npu3.1.1756000000000",
                "faultType": "NPU",
                "faultCode": "020011001",
                "faultTime": 1_756_000_000_000_u64,
                "assertion": "occur",
                "faultLocation": {"npu": "3"},
                "influence": [{"nodeName": "worker-7", "deviceIds": [3]}],
                "description": "gone",
            }],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn rejects_invalid_batches() {
        let many: Vec<_> = (0..101).map(fault).collect();
        assert_eq!(Message::new(&[], NOW).err(), Some(InvalidBatch::Empty));
        assert_eq!(Message::new(&many, NOW).err(), Some(InvalidBatch::TooMany(101)));
        assert!(Message::new(&many[..100], NOW).is_ok());
        let without_node = PublicFault { node: String::new(), ..fault(1) };
        let error = Message::new(&[fault(0), without_node], NOW).err();
        assert!(
            matches!(&error, Some(InvalidBatch::Invalid(invalid)) if invalid.field == Field::NodeName),
            "{error:?}"
        );
    }

    #[test]
    fn replaces_a_timestamp_that_clusterd_would_refuse() {
        let faults = [fault(3)];
        for now in [0, 1_000_000, u64::MAX] {
            let message = Message::new(&faults, now).expect("valid");
            assert_eq!(message.timestamp(), 1_756_000_000_000);
        }
    }

    #[test]
    fn id_is_valid_and_depends_on_contents_and_time() {
        let id = |faults: &[PublicFault], now| Message::new(faults, now).expect("valid").id();
        let first = id(&[fault(1)], NOW);
        assert!(is_id(&first), "{first}");
        assert_eq!(id(&[fault(1)], NOW), first);
        assert_ne!(id(&[fault(1)], NOW + 1), first);
        assert_ne!(id(&[fault(1).with_assertion(Assertion::Recover)], NOW), first);
    }

    #[test]
    fn longest_message_fits_into_a_config_map() {
        let biggest = |i: u32| PublicFault {
            fault_id: format!("{i:0128}"),
            location: (0..10).map(|key| (format!("{key:016}"), "v".repeat(128))).collect(),
            node: "n".repeat(253),
            devices: (0..32).collect(),
            description: "障".repeat(512),
            ..fault(i)
        };
        let faults: Vec<_> = (0..100).map(biggest).collect();
        let message = Message::new(&faults, NOW).expect("valid");
        assert!(message.to_json().len() < 1_000_000, "{}", message.to_json().len());
    }
}
