//! The way without a connection: a ConfigMap that ClusterD reads.
//!
//! ClusterD watches ConfigMaps with the label [`LABEL`] in every namespace and reads the key [`KEY`]
//! (`clusterd/pkg/interface/kube/informer.go` of MindCluster). There is no answer. What has to be known of it:
//! - One that exists when ClusterD starts isn't read until it changes.
//! - Of a change the *old* version is parsed first; if that is garbage, the new one is dropped. So a sound one has to be
//!   written twice over garbage.
//! - Deleting it takes nothing back.

use std::collections::HashMap;

use serde::Deserialize;

use crate::message::{InvalidBatch, Message};
use crate::public_fault::PublicFault;

/// The label, and its value, by which ClusterD finds it.
pub const LABEL: (&str, &str) = ("mc-consumer-publicfault", "true");
/// The key in `data`.
pub const KEY: &str = "PublicFault";
/// Bytes that a ConfigMap may hold. A message that keeps all rules is smaller.
pub const MAX_BYTES: usize = 1 << 20;

/// The contents to be written one after the other, each as a write of its own, so that ClusterD reads `faults`.
/// `now` is in milliseconds since 1970; `existing` is what stands under [`KEY`], if there is such a ConfigMap (an empty
/// text if the key is missing). Each content differs from the one before.
pub fn contents(
    existing: Option<&str>,
    faults: &[PublicFault],
    now: u64,
) -> Result<Vec<String>, InvalidBatch> {
    let content = Message::new(faults, now)?.to_json();
    let later = || Message::new(faults, now + 1).map(|message| message.to_json());
    Ok(match existing {
        // ClusterD drops what follows garbage: the first write only makes the old version sound.
        Some(old) if !is_sound(old) => vec![content, later()?],
        // The same faults in the same millisecond: a write that changes nothing is no event.
        Some(old) if old == content => vec![later()?],
        _ => vec![content],
    })
}

/// Whether ClusterD can parse it: an object in which the members that it knows have the right types.
fn is_sound(content: &str) -> bool {
    serde_json::from_str::<Known>(content).is_ok()
}

/// `PubFaultInfo` of `ascend-common/api/publicfault.go`. Go takes `null` and absent members alike.
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
    fn one_write_is_enough_for_a_new_one_and_over_a_sound_one() {
        let first = contents(None, &faults(), NOW).expect("sound");
        assert_eq!(first.len(), 1);
        assert_eq!(contents(Some(&first[0]), &faults(), NOW + 9).expect("sound").len(), 1);
    }

    #[test]
    fn over_garbage_it_is_written_twice_and_differs() {
        for garbage in ["", "{", "[]", r#"{"id": 1}"#, r#"{"faults": [{"influence": 3}]}"#] {
            let writes = contents(Some(garbage), &faults(), NOW).expect("sound");
            assert_eq!(writes.len(), 2, "{garbage}");
            assert_ne!(writes[0], writes[1]);
            assert!(writes.iter().all(|write| is_sound(write)));
        }
    }

    #[test]
    fn the_same_again_still_changes_the_content() {
        let first = contents(None, &faults(), NOW).expect("sound").remove(0);
        let again = contents(Some(&first), &faults(), NOW).expect("sound");
        assert_eq!(again.len(), 1);
        assert_ne!(again[0], first);
    }

    #[test]
    fn what_cannot_be_sent_is_not_written() {
        let nameless = PublicFault { node: String::new(), ..faults().remove(0) };
        assert!(contents(None, &[nameless], NOW).is_err());
    }
}
