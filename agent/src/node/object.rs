//! What a Node shows, read from its JSON. Most of a Node is the list of images and none of our business.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::Value;

use crate::finding::Ready;
use crate::readiness::{BOOT_ID, CONDITION, Condition, LABEL, ObservedNode, TAINT};
use crate::relay::CONDITION as RELAYED;

/// The effect of the taint.
pub(super) const NO_SCHEDULE: &str = "NoSchedule";

/// The resources of whole NPUs, one for each device node. Ascend310P isn't among them: the device plugin can offer one
/// device several times (`shareDevCount`).
const WHOLE_NPUS: [&str; 2] = ["huawei.com/Ascend910", "huawei.com/npu"];

/// A Node as the API server gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeState {
    /// Its UID; another one is another Node of the same name.
    pub uid: String,
    /// For writes that must not undo somebody else's.
    pub resource_version: String,
    /// What concerns the agent.
    pub observed: ObservedNode,
    /// All taints, as they are.
    pub taints: Vec<Value>,
    /// How many NPUs the node has by its capacity.
    pub npus: Option<u32>,
    /// The condition of the relay.
    pub relayed: Option<Condition>,
}

impl NodeState {
    /// Reads a Node.
    ///
    /// # Errors
    ///
    /// When it isn't one.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let node: Node<'_> = serde_json::from_slice(json)?;
        let (spec, status) = (node.spec.unwrap_or_default(), node.status.unwrap_or_default());
        let mut metadata = node.metadata;
        let mut labels = metadata.labels.take().unwrap_or_default();
        let mut annotations = metadata.annotations.take().unwrap_or_default();
        let taints = spec.taints.unwrap_or_default();
        let (mut condition, mut relayed) = (None, None);
        for one in status.conditions.unwrap_or_default() {
            match &*one.kind {
                CONDITION => condition = Some(one),
                RELAYED => relayed = Some(one),
                _ => {}
            }
        }
        let capacity = status.capacity.unwrap_or_default();
        let npus: u32 = WHOLE_NPUS.iter().filter_map(|&name| capacity.get(name)?.parse::<u32>().ok()).sum();
        Ok(Self {
            observed: ObservedNode {
                condition: condition.map(RawCondition::read),
                label: labels.remove(LABEL).flatten(),
                tainted: taints.iter().any(is_ours),
                boot_id: annotations.remove(BOOT_ID).flatten(),
            },
            uid: metadata.uid.into_owned(),
            resource_version: metadata.resource_version.into_owned(),
            taints,
            npus: (npus > 0).then_some(npus),
            relayed: relayed.map(RawCondition::read),
        })
    }

    /// Whether this is as new as `other`. Resource versions are numbers that grow (KEP-5504); where they aren't,
    /// whatever comes is taken.
    pub fn is_as_new_as(&self, other: &Self) -> bool {
        let version = |state: &Self| state.resource_version.parse::<u64>().ok();
        self.uid != other.uid
            || match (version(self), version(other)) {
                (Some(own), Some(other)) => own >= other,
                _ => true,
            }
    }
}

/// Whether a taint is the agent's.
pub(super) fn is_ours(taint: &Value) -> bool {
    taint["key"] == TAINT && taint["effect"] == NO_SCHEDULE
}

#[derive(Debug, Deserialize)]
struct Node<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    spec: Option<Spec>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
    labels: Option<BTreeMap<String, Option<String>>>,
    annotations: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    taints: Option<Vec<Value>>,
}

#[derive(Debug, Default, Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
    #[serde(borrow)]
    capacity: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    last_heartbeat_time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    last_transition_time: Option<Cow<'a, str>>,
}

impl RawCondition<'_> {
    fn read(self) -> Condition {
        // A time that isn't there is long ago.
        let time = |text: Option<Cow<'_, str>>| {
            text.and_then(|text| humantime::parse_rfc3339(&text).ok()).unwrap_or(SystemTime::UNIX_EPOCH)
        };
        Condition {
            status: match &*self.status {
                "True" => Ready::True,
                "False" => Ready::False,
                _ => Ready::Unknown,
            },
            reason: self.reason.unwrap_or_default().into_owned(),
            message: self.message.unwrap_or_default().into_owned(),
            heartbeat: time(self.last_heartbeat_time),
            transition: time(self.last_transition_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_concerns_us_is_read() {
        let node = json!({
            "kind": "Node",
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "12",
                "labels": {LABEL: "true", "a": null}, "annotations": {BOOT_ID: "b"}},
            "spec": {"taints": [{"key": TAINT, "effect": "NoExecute"}, {"key": "x", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "1", "huawei.com/Ascend910": "8", "huawei.com/Ascend910-2c": "4"},
                "images": [{"names": ["x"]}],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": CONDITION, "status": "False", "reason": "R",
                    "message": "a \"b\"", "lastHeartbeatTime": "1970-01-01T00:01:00Z", "lastTransitionTime": null}],
            },
        });
        let state = NodeState::read(node.to_string().as_bytes()).expect("a Node");
        let condition = state.observed.condition.clone().expect("there");
        assert_eq!((condition.status, condition.message.as_str()), (Ready::False, "a \"b\""));
        assert_eq!(condition.heartbeat, SystemTime::UNIX_EPOCH + Duration::from_mins(1));
        assert_eq!(state.observed.label.as_deref(), Some("true"));
        assert_eq!(state.observed.boot_id.as_deref(), Some("b"));
        assert!(!state.observed.tainted, "another effect is another's");
        assert_eq!((state.npus, state.taints.len()), (Some(8), 2));
    }

    #[test]
    fn a_bare_node() {
        for text in
            [r#"{"metadata":{}}"#, r#"{"metadata":{"labels":null},"spec":{"taints":null},"status":null}"#]
        {
            let state = NodeState::read(text.as_bytes()).expect(text);
            assert_eq!((state.observed, state.npus), (ObservedNode::default(), None));
        }
        assert!(NodeState::read(b"[]").is_err());
    }

    #[test]
    fn newer_is_newer() {
        let state = |uid: &str, version: &str| {
            NodeState::read(
                json!({"metadata": {"uid": uid, "resourceVersion": version}}).to_string().as_bytes(),
            )
            .expect("a Node")
        };
        assert!(state("u", "10").is_as_new_as(&state("u", "9")));
        assert!(!state("u", "9").is_as_new_as(&state("u", "10")));
        assert!(state("v", "9").is_as_new_as(&state("u", "10")));
        assert!(state("u", "x").is_as_new_as(&state("u", "10")));
    }
}
