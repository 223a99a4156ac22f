//! Pods without the parts that the agent doesn't read, which saves memory, and what it reads of its Node.

use std::borrow::Cow;
use std::time::SystemTime;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Pod, ResourceRequirements, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use swansong_api::annotations::LAUNCHER_HOOK_MODULE;
use swansong_api::labels::DUMP_READY as LABEL;
use swansong_api::launcher_hook::VOLUME;
use swansong_api::node::{BOOT_ID, DUMP_READY, NOT_READY_TAINT, REHEARSAL, REHEARSE, RehearsalResult};
use swansong_faults::NPU_RESOURCES;

use crate::finding::Ready;
use crate::readiness::{Condition, ObservedNode};

/// Condition type: whether device faults reach ClusterD.
pub const FAULTS_CONDITION: &str = "FaultsRelayed";

/// The effect of the taint.
pub(super) const NO_SCHEDULE: &str = "NoSchedule";

/// Resources that count whole NPUs, one per device node. Ascend310P isn't among them, since the device plugin can offer one
/// device several times (`shareDevCount`).
const WHOLE_NPUS: [&str; 2] = ["huawei.com/Ascend910", "huawei.com/npu"];

/// The parts of a Pod that the agent reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Option<PodSpec>,
    pub(crate) status: Option<PodStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) containers: Option<Vec<Container>>,
    pub(crate) init_containers: Option<Vec<Container>>,
    pub(crate) volumes: Option<Vec<Volume>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) env: Option<Vec<EnvVar>>,
    pub(crate) resources: Option<ResourceRequirements>,
    pub(crate) volume_mounts: Option<Vec<VolumeMount>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Volume {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct VolumeMount {
    pub(crate) name: String,
    pub(crate) mount_path: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EnvVar {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<String>,
    pub(crate) container_statuses: Option<Vec<ContainerStatus>>,
    pub(crate) init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    #[serde(rename = "containerID")]
    pub(crate) container_id: Option<String>,
    pub(crate) state: Option<ContainerState>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<ContainerReason>,
    pub(crate) terminated: Option<ContainerReason>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerReason {
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

impl Resource for PodObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl PodObject {
    /// Whether all containers have ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase(), Some("Succeeded" | "Failed"))
    }

    pub(crate) fn phase(&self) -> Option<&str> {
        self.status.as_ref()?.phase.as_deref()
    }

    /// The runtime's id of a container without its scheme; `None` until it is started.
    pub(crate) fn container_id(&self, name: &str) -> Option<String> {
        let status = self.status.as_ref()?;
        let statuses = [&status.container_statuses, &status.init_container_statuses];
        let status = statuses.into_iter().flatten().flatten().find(|status| status.name == name)?;
        Some(status.container_id.as_deref()?.split_once("://")?.1.to_owned())
    }

    /// Whether it carries the launcher hook.
    pub(crate) fn has_launcher_hook(&self) -> bool {
        let mut annotations = self.metadata.annotations.iter().flatten();
        let volumes = self.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        annotations.any(|(name, _)| name == LAUNCHER_HOOK_MODULE)
            && volumes.iter().any(|volume| volume.name == VOLUME)
    }
}

impl Container {
    /// Whether it requests a device of Ascend. The API server copies limits to requests.
    pub(crate) fn requests_npu(&self) -> bool {
        let requests = self.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        requests.into_iter().flatten().any(|(name, quantity)| {
            name.starts_with(NPU_RESOURCES) && quantity.0.trim().bytes().any(|c| matches!(c, b'1'..=b'9'))
        })
    }

    /// The literal value of an environment variable. The kubelet uses the last of several entries.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let variables = self.env.as_deref()?;
        variables.iter().rev().find(|variable| variable.name == name)?.value.as_deref()
    }
}

/// The state of the agent's Node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeState {
    /// The UID. Another UID means another Node of the same name.
    pub uid: String,
    /// The resource version, for optimistic concurrency.
    pub resource_version: String,
    /// What the Node shows about its readiness.
    pub observed: ObservedNode,
    pub faults: Option<Condition>,
    /// All taints, including those of other clients.
    pub taints: Vec<Taint>,
    /// The number of NPUs by the Node's capacity.
    pub npus: Option<u32>,
    /// The last requested rehearsal, and the result of the last one.
    pub rehearsal: (Option<String>, Option<RehearsalResult>),
}

impl From<Node> for NodeState {
    fn from(node: Node) -> Self {
        let Node { metadata, spec, status } = node;
        let taints = spec.and_then(|spec| spec.taints).unwrap_or_default();
        let NodeStatus { conditions, capacity, .. } = status.unwrap_or_default();
        let conditions = conditions.unwrap_or_default();
        let find = |type_: &str| conditions.iter().find(|one| one.type_ == type_).map(condition);
        let capacity = capacity.unwrap_or_default();
        let npus: u32 = WHOLE_NPUS.iter().filter_map(|&name| capacity.get(name)?.0.parse::<u32>().ok()).sum();
        let mut annotations = metadata.annotations.unwrap_or_default();
        let result = annotations.remove(REHEARSAL).and_then(|text| serde_json::from_str(&text).ok());
        Self {
            rehearsal: (annotations.remove(REHEARSE), result),
            observed: ObservedNode {
                condition: find(DUMP_READY),
                label: metadata.labels.and_then(|mut labels| labels.remove(LABEL)),
                tainted: taints.iter().any(is_own_taint),
                boot_id: annotations.remove(BOOT_ID),
            },
            faults: find(FAULTS_CONDITION),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            taints,
            npus: (npus > 0).then_some(npus),
        }
    }
}

impl NodeState {
    /// The request for a rehearsal that has no result.
    pub fn open_rehearsal(&self) -> Option<String> {
        let (request, result) = &self.rehearsal;
        let request = request.as_ref().filter(|request| !request.is_empty())?;
        let is_answered = result.as_ref().is_some_and(|result| result.request == *request);
        (!is_answered).then(|| request.clone())
    }

    /// Whether this is at least as new as `other`. Resource versions are increasing numbers (KEP-5504); other ones can't be
    /// compared.
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
pub(super) fn is_own_taint(taint: &Taint) -> bool {
    taint.key == NOT_READY_TAINT && taint.effect == NO_SCHEDULE
}

fn condition(condition: &NodeCondition) -> Condition {
    // A missing time counts as long ago.
    let time = |time: &Option<Time>| {
        time.as_ref().map_or(SystemTime::UNIX_EPOCH, |Time(timestamp)| (*timestamp).into())
    };
    Condition {
        status: match condition.status.as_str() {
            "True" => Ready::True,
            "False" => Ready::False,
            _ => Ready::Unknown,
        },
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
        heartbeat: time(&condition.last_heartbeat_time),
        transition: time(&condition.last_transition_time),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn state(node: Value) -> NodeState {
        serde_json::from_value::<Node>(node).expect("a Node").into()
    }

    #[test]
    fn reads_a_node() {
        let state = state(json!({
            "kind": "Node",
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "12",
                "labels": {LABEL: "true"}, "annotations": {BOOT_ID: "b"}},
            "spec": {"taints": [{"key": NOT_READY_TAINT, "effect": "NoExecute"}, {"key": "x", "effect": "NoSchedule"}]},
            "status": {
                "capacity": {"cpu": "1", "huawei.com/Ascend910": "8", "huawei.com/Ascend910-2c": "4"},
                "images": [{"names": ["x"]}],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": DUMP_READY, "status": "False", "reason": "R",
                    "message": "a \"b\"", "lastHeartbeatTime": "1970-01-01T00:01:00Z", "lastTransitionTime": null}],
            },
        }));
        let condition = state.observed.condition.clone().expect("a condition");
        assert_eq!((condition.status, condition.message.as_str()), (Ready::False, "a \"b\""));
        assert_eq!(condition.heartbeat, SystemTime::UNIX_EPOCH + Duration::from_mins(1));
        assert_eq!(state.observed.label.as_deref(), Some("true"));
        assert_eq!(state.observed.boot_id.as_deref(), Some("b"));
        assert!(!state.observed.tainted, "the effect differs");
        assert_eq!((state.npus, state.taints.len()), (Some(8), 2));
    }

    #[test]
    fn reads_a_node_without_optional_parts() {
        for node in
            [json!({"metadata": {}}), json!({"metadata": {}, "spec": {"taints": null}, "status": null})]
        {
            let state = state(node);
            assert_eq!((state.observed, state.npus), (ObservedNode::default(), None));
        }
    }

    #[test]
    fn rehearsal_is_open_until_its_own_result_is_there() {
        let result = |request: &str| format!(r#"{{"request": "{request}", "at": 7, "status": "pass"}}"#);
        for (annotations, open) in [
            (json!({}), None),
            (json!({REHEARSE: ""}), None),
            (json!({REHEARSE: "2"}), Some("2")),
            (json!({REHEARSE: "2", REHEARSAL: result("1")}), Some("2")),
            (json!({REHEARSE: "2", REHEARSAL: result("2")}), None),
            (json!({REHEARSE: "2", REHEARSAL: "nonsense"}), Some("2")),
            (json!({REHEARSAL: result("2")}), None),
        ] {
            let state = state(json!({"metadata": {"annotations": annotations}}));
            assert_eq!(state.open_rehearsal().as_deref(), open, "{annotations}");
        }
    }

    #[test]
    fn compares_resource_versions() {
        let state =
            |uid: &str, version: &str| state(json!({"metadata": {"uid": uid, "resourceVersion": version}}));
        assert!(state("u", "10").is_as_new_as(&state("u", "9")));
        assert!(!state("u", "9").is_as_new_as(&state("u", "10")));
        assert!(state("v", "9").is_as_new_as(&state("u", "10")));
        assert!(state("u", "x").is_as_new_as(&state("u", "10")));
    }
}
