//! The ConfigMap that ClusterD reads faults from, a transport without a connection.
//!
//! ClusterD watches ConfigMaps with the label [`LABEL`] in every namespace and reads the key [`KEY`]
//! (`clusterd/pkg/interface/kube/informer.go` of MindCluster). There is no response.
//! - A ConfigMap that exists when ClusterD starts isn't read until it changes.
//! - At a change ClusterD parses the *old* version first; if that is invalid, it drops the new one. Therefore a valid one has
//!   to be written twice over an invalid one.
//! - Deleting it withdraws nothing.

use std::collections::HashMap;

use serde::Deserialize;

use crate::message::{InvalidBatch, Message};
use crate::public_fault::PublicFault;

/// The label that ClusterD selects.
pub const LABEL: (&str, &str) = ("mc-consumer-publicfault", "true");
/// The key in `data`.
pub const KEY: &str = "PublicFault";
/// The size limit of a ConfigMap, in bytes. A valid message is smaller.
pub const MAX_BYTES: usize = 1 << 20;

/// The contents to write one after the other to make ClusterD read `faults`. `now` is in milliseconds since 1970; `existing` is
/// the value of [`KEY`] in the ConfigMap, if it exists (empty if the key is missing). Each content differs from the one before.
pub fn contents(
    existing: Option<&str>,
    faults: &[PublicFault],
    now: u64,
) -> Result<Vec<String>, InvalidBatch> {
    let content = Message::new(faults, now)?.to_json();
    let later = || Message::new(faults, now + 1).map(|message| message.to_json());
    Ok(match existing {
        // The first write only makes the old version valid.
        Some(old) if !is_valid(old) => vec![content, later()?],
        // The same faults in the same millisecond: a write without a change causes no event.
        Some(old) if old == content => vec![later()?],
        _ => vec![content],
    })
}

/// Whether ClusterD can parse it: an object whose known members have the right types.
fn is_valid(content: &str) -> bool {
    serde_json::from_str::<Known>(content).is_ok()
}

/// `PubFaultInfo` of `ascend-common/api/publicfault.go`. Go treats `null` as a missing member.
#[derive(Deserialize)]
#[allow(dead_code, reason = "only the types count")]
#[serde(rename_all = "camelCase")]
struct Known {
    id: Option<String>,
    timestamp: Option<i64>,
    version: Option<String>,
    resource: Option<String>,
    faults: Option<Vec<Option<KnownFault>>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "only the types count")]
#[serde(rename_all = "camelCase")]
struct KnownFault {
    fault_id: Option<String>,
    fault_type: Option<String>,
    fault_code: Option<String>,
    fault_time: Option<i64>,
    assertion: Option<String>,
    fault_location: Option<HashMap<String, Option<String>>>,
    influence: Option<Vec<Option<KnownInfluence>>>,
    description: Option<String>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "only the types count")]
struct KnownInfluence {
    #[serde(rename = "nodeName")]
    node_name: Option<String>,
    #[serde(rename = "nodeSN")]
    node_sn: Option<String>,
    #[serde(rename = "deviceIds")]
    device_ids: Option<Vec<Option<i32>>>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swansong_fault_model::Assertion;

    use super::*;
    use crate::class::Class;
    use crate::public_fault::FaultType;

    const NOW: u64 = 1_756_000_001_000;

    fn faults() -> Vec<PublicFault> {
        vec![PublicFault {
            fault_id: "worker-7.npu3.1.1756000000000".to_owned(),
            fault_type: FaultType::Npu,
            class: Class::ChipSeparate,
            fault_time: 1_756_000_000_000,
            assertion: Assertion::Occur,
            location: BTreeMap::new(),
            node: "worker-7".to_owned(),
            devices: vec![3],
            description: "gone".to_owned(),
        }]
    }

    #[test]
    fn writes_once_without_or_over_valid_contents() {
        let first = contents(None, &faults(), NOW).expect("valid");
        assert_eq!(first.len(), 1);
        assert_eq!(contents(Some(&first[0]), &faults(), NOW + 9).expect("valid").len(), 1);
    }

    #[test]
    fn writes_twice_over_invalid_contents() {
        for invalid in ["", "{", "[]", r#"{"id": 1}"#, r#"{"faults": [{"influence": 3}]}"#] {
            let writes = contents(Some(invalid), &faults(), NOW).expect("valid");
            assert_eq!(writes.len(), 2, "{invalid}");
            assert_ne!(writes[0], writes[1]);
            assert!(writes.iter().all(|write| is_valid(write)));
        }
    }

    #[test]
    fn repeated_faults_change_the_content() {
        let first = contents(None, &faults(), NOW).expect("valid").remove(0);
        let again = contents(Some(&first), &faults(), NOW).expect("valid");
        assert_eq!(again.len(), 1);
        assert_ne!(again[0], first);
    }

    #[test]
    fn rejects_invalid_faults() {
        let without_node = PublicFault { node: String::new(), ..faults().remove(0) };
        assert!(contents(None, &[without_node], NOW).is_err());
    }
}
