//! What is sent: faults and envelope, as protobuf and as JSON.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use swansong_fault_model::Assertion;

use crate::class::RESOURCE;
use crate::proto;
use crate::public_fault::{FaultType, Invalid, MAX_BATCH, PublicFault};

/// The only version that there is.
const VERSION: &str = "1.0";

/// A batch that can't be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSendable {
    /// ClusterD refuses a message without faults.
    #[error("there are no faults to send")]
    Empty,
    /// ClusterD refuses a message with more than [`MAX_BATCH`] faults.
    #[error("{0} faults are more than the {MAX_BATCH} that ClusterD takes in one message")]
    TooMany(usize),
    /// A fault breaks a rule; ClusterD would drop it and not say so.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Proven faults, ready to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    faults: &'a [PublicFault],
    /// Milliseconds since 1970.
    timestamp: u64,
}

impl<'a> Message<'a> {
    /// A message that is sent at `now`, milliseconds since 1970.
    pub fn new(faults: &'a [PublicFault], now: u64) -> Result<Self, NotSendable> {
        match faults.len() {
            0 => return Err(NotSendable::Empty),
            1..=MAX_BATCH => {}
            more => return Err(NotSendable::TooMany(more)),
        }
        faults.iter().try_for_each(PublicFault::validate)?;
        // A node's clock that is off by years may not have the whole message refused.
        let occurred = faults.iter().map(|fault| fault.fault_time).max().unwrap_or(now);
        let timestamp = if (occurred..10_000_000_000_000).contains(&now) { now } else { occurred };
        Ok(Self { faults, timestamp })
    }

    /// The message's own name: a hash of what it says and when, so that the log of ClusterD and ours can be joined.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.timestamp.to_be_bytes());
        for fault in self.faults {
            hash.update(fault.fault_id.as_bytes());
            hash.update(assertion(fault.assertion).as_bytes());
        }
        let mut id = format!("{RESOURCE}-");
        for byte in hash.finalize().iter().take(12) {
            // Writing into a String has no way to fail.
            let _ = write!(id, "{byte:02x}");
        }
        id
    }

    /// For gRPC.
    pub fn to_proto(&self) -> proto::PublicFaultRequest {
        proto::PublicFaultRequest {
            id: self.id(),
            timestamp: self.timestamp.cast_signed(),
            version: VERSION.to_owned(),
            resource: RESOURCE.to_owned(),
            faults: self.faults.iter().map(fault_to_proto).collect(),
        }
    }

    /// For a ConfigMap: the same fields by the same names.
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

fn fault_to_proto(fault: &PublicFault) -> proto::Fault {
    // At most 31, as proven.
    let device_ids = fault.devices.iter().map(|device| device.cast_signed()).collect();
    let influence = proto::PubFaultInfo { node_name: fault.node.clone(), node_sn: String::new(), device_ids };
    proto::Fault {
        fault_id: fault.fault_id.clone(),
        fault_type: fault_type(fault.fault_type).to_owned(),
        fault_code: fault.class.code().to_owned(),
        fault_time: fault.fault_time.cast_signed(),
        assertion: assertion(fault.assertion).to_owned(),
        fault_location: HashMap::from_iter(fault.location.clone()),
        influence: vec![influence],
        description: fault.description.clone(),
    }
}

const fn fault_type(fault_type: FaultType) -> &'static str {
    match fault_type {
        FaultType::Npu => "NPU",
        FaultType::Node => "Node",
    }
}

const fn assertion(assertion: Assertion) -> &'static str {
    match assertion {
        Assertion::Occur => "occur",
        Assertion::Recover => "recover",
        Assertion::Once => "once",
    }
}

fn fault_to_json(fault: &PublicFault) -> Value {
    json!({
        "faultId": fault.fault_id,
        "faultType": fault_type(fault.fault_type),
        "faultCode": fault.class.code(),
        "faultTime": fault.fault_time,
        "assertion": assertion(fault.assertion),
        "faultLocation": fault.location,
        "influence": [{"nodeName": fault.node, "deviceIds": fault.devices}],
        "description": fault.description,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::class::Class;
    use crate::public_fault::{Field, is_id};

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
    fn json_has_the_documents_names() {
        let faults = [fault(3)];
        let message = Message::new(&faults, NOW).expect("sound");
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
    fn only_sound_batches_become_messages() {
        let many: Vec<_> = (0..101).map(fault).collect();
        assert_eq!(Message::new(&[], NOW).err(), Some(NotSendable::Empty));
        assert_eq!(Message::new(&many, NOW).err(), Some(NotSendable::TooMany(101)));
        assert!(Message::new(&many[..100], NOW).is_ok());
        let nameless = PublicFault { node: String::new(), ..fault(1) };
        let error = Message::new(&[fault(0), nameless], NOW).err();
        assert!(
            matches!(&error, Some(NotSendable::Invalid(invalid)) if invalid.field == Field::NodeName),
            "{error:?}"
        );
    }

    #[test]
    fn a_clock_that_is_off_by_years_spoils_no_message() {
        let faults = [fault(3)];
        for now in [0, 1_000_000, u64::MAX] {
            let message = Message::new(&faults, now).expect("sound").to_proto();
            assert_eq!(message.timestamp, 1_756_000_000_000);
        }
    }

    #[test]
    fn the_id_is_legal_and_of_this_message() {
        let id = |faults: &[PublicFault], now| Message::new(faults, now).expect("sound").id();
        let first = id(&[fault(1)], NOW);
        assert!(is_id(&first), "{first}");
        assert_eq!(id(&[fault(1)], NOW), first);
        assert_ne!(id(&[fault(1)], NOW + 1), first);
        assert_ne!(id(&[fault(1).asserting(Assertion::Recover)], NOW), first);
    }

    #[test]
    fn the_longest_message_stays_below_four_mebibytes_and_one_megabyte_of_json() {
        let biggest = |i: u32| PublicFault {
            fault_id: format!("{i:0128}"),
            location: (0..10).map(|key| (format!("{key:016}"), "v".repeat(128))).collect(),
            node: "n".repeat(253),
            devices: (0..32).collect(),
            description: "障".repeat(512),
            ..fault(i)
        };
        let faults: Vec<_> = (0..100).map(biggest).collect();
        let message = Message::new(&faults, NOW).expect("sound");
        assert!(message.to_json().len() < 1_000_000, "{}", message.to_json().len());
        assert!(prost::Message::encoded_len(&message.to_proto()) < 4 << 20);
    }
}
