//! The Pods of this node that use NPUs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use swansong_fault_model::Subject;

/// The devices that the device plugin mounted, from which ClusterD knows ranks (`ascend-common/api`,
/// `docs/en/scheduling/api/k8s.md`).
const CONFIGURATION: &str = "ascend.kubectl.kubernetes.io/ascend-910-configuration";
/// The devices that were mounted, and those that the scheduler chose, in this order.
const GRANTED: [&str; 3] = ["huawei.com/AscendReal", "huawei.com/Ascend910", "huawei.com/npu"];
const GROUP: &str = "scheduling.k8s.io/group-name";
const RANK: &str = "hccl/rankIndex";
/// Asks for lost ranks to be reported directly.
const FAST_DUMP: &str = "swansong.dev/fast-dump";

/// The kinds of jobs that have a PodGroup with a strategy.
const JOBS: [&str; 2] = ["AscendJob", "Job"];

/// A Pod that uses NPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpuPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The container that Events refer to: `ascend`, or the first.
    pub container: String,
    /// Whether its phase is Running.
    pub is_running: bool,
    pub group: Option<String>,
    /// The job that owns it.
    pub job: Option<Owner>,
    /// Physical ids of the device plugin's configuration, in the order of ranks; `None` if there is none that can be read.
    pub configured: Option<Vec<u32>>,
    /// Physical ids of the other annotations.
    pub granted: Vec<u32>,
    /// Its rank in the job.
    pub rank: Option<u32>,
    /// Whether it asks for lost ranks to be reported directly.
    pub fast_dump: bool,
}

/// A job, as an owner reference names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// Its group and version.
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

impl NpuPod {
    /// Reads a Pod in the API server's JSON. `None` if it has ended or uses no NPU.
    pub fn read(json: &[u8]) -> Option<Self> {
        let pod: Pod<'_> = serde_json::from_slice(json).ok()?;
        let metadata = pod.metadata.unwrap_or_default();
        let annotations = metadata.annotations.unwrap_or_default();
        let annotation = |name: &str| annotations.get(name).and_then(Option::as_deref);
        let configured = annotation(CONFIGURATION).map(configured);
        let granted: Vec<u32> =
            GRANTED.iter().find_map(|name| annotation(name)).map(granted).unwrap_or_default();
        if configured.is_none() && granted.is_empty() {
            return None;
        }
        let phase = pod.status.unwrap_or_default().phase.unwrap_or_default();
        if matches!(&*phase, "Succeeded" | "Failed") {
            return None;
        }
        let owners = metadata.owner_references.unwrap_or_default();
        let job = owners.into_iter().find(|owner| JOBS.contains(&owner.kind.as_str()));
        let containers = pod.spec.unwrap_or_default().containers.unwrap_or_default();
        let container = containers
            .iter()
            .find(|container| container.name == "ascend")
            .or(containers.first())
            .map_or_else(String::new, |container| container.name.to_string());
        let own = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
        Some(Self {
            namespace: own(metadata.namespace),
            name: own(metadata.name),
            uid: own(metadata.uid),
            container,
            is_running: phase == "Running",
            group: annotation(GROUP).map(str::to_owned),
            job,
            configured: configured.flatten(),
            granted,
            rank: annotation(RANK).and_then(|rank| rank.trim().parse().ok()),
            fast_dump: annotation(FAST_DUMP).is_some_and(|value| value.trim() == "true"),
        })
    }

    /// Whether it uses the device that `subject` is; every Pod uses the node.
    pub fn uses(&self, subject: Subject) -> bool {
        match subject {
            Subject::Node => true,
            Subject::Npu(id) => {
                self.granted.contains(&id) || self.configured.as_ref().is_some_and(|ids| ids.contains(&id))
            }
        }
    }

    /// The name of its job, which is part of the names of the job's ConfigMaps.
    pub fn job_name(&self) -> Option<&str> {
        self.job.as_ref().map(|job| job.name.as_str())
    }

    /// The global ranks on `subject`, as ClusterD counts them: the Pod's rank times its devices, plus the place in the
    /// configuration.
    pub fn ranks(&self, subject: Subject) -> Vec<u32> {
        let (Some(devices), Some(rank)) = (&self.configured, self.rank) else { return Vec::new() };
        let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let is_affected = |id: u32| matches!(subject, Subject::Node) || subject == Subject::Npu(id);
        (0u32..)
            .zip(devices)
            .filter(|&(_, &id)| is_affected(id))
            .filter_map(|(place, _)| rank.checked_mul(count)?.checked_add(place))
            .collect()
    }
}

/// The ids of `{"pod_name":…,"server_id":…,"devices":[{"device_id":"3","device_ip":…}]}`.
fn configured(text: &str) -> Option<Vec<u32>> {
    #[derive(Deserialize)]
    struct Configuration<'a> {
        #[serde(borrow)]
        devices: Vec<Device<'a>>,
    }
    #[derive(Deserialize)]
    struct Device<'a> {
        #[serde(borrow)]
        device_id: Cow<'a, str>,
    }
    let configuration: Configuration<'_> = serde_json::from_str(text).ok()?;
    configuration.devices.iter().map(|device| device.device_id.trim().parse().ok()).collect()
}

/// `Ascend910-3,Ascend910-4`, `npu-3`; virtual devices (`Ascend910-2c-100-3`) end in the physical id too.
fn granted(text: &str) -> Vec<u32> {
    text.split(',').filter_map(|device| device.trim().rsplit_once('-')?.1.parse().ok()).collect()
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    annotations: Option<BTreeMap<String, Option<String>>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Default, Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(annotations: &serde_json::Value, phase: &str) -> Option<NpuPod> {
        let owner = json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "bert", "uid": "j", "controller": true});
        let pod = json!({
            "metadata": {"name": "bert-worker-0", "namespace": "ml", "uid": "u", "annotations": annotations, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "side"}, {"name": "ascend"}]},
            "status": {"phase": phase},
        });
        NpuPod::read(pod.to_string().as_bytes())
    }

    fn configuration(ids: &[&str]) -> String {
        let devices: Vec<_> =
            ids.iter().map(|id| json!({"device_id": id, "device_ip": "10.0.0.1"})).collect();
        json!({"pod_name": "bert-worker-0", "server_id": "10.0.0.9", "devices": devices}).to_string()
    }

    #[test]
    fn ranks_are_counted_as_clusterd_counts_them() {
        let annotations = json!({
            CONFIGURATION: configuration(&["0", "1", "2", "3", "4", "5", "6", "7"]), RANK: "1", GROUP: "bert-j",
        });
        let pod = pod(&annotations, "Running").expect("it uses NPUs");
        // The real ClusterD calls device 3 of the second pod rank 11.
        assert_eq!(pod.ranks(Subject::Npu(3)), [11]);
        assert_eq!(pod.ranks(Subject::Node), [8, 9, 10, 11, 12, 13, 14, 15]);
        assert!(pod.uses(Subject::Npu(3)) && !pod.uses(Subject::Npu(8)));
        assert_eq!((pod.container.as_str(), pod.job_name(), pod.is_running), ("ascend", Some("bert"), true));
    }

    #[test]
    fn granted_devices_are_used_though_not_configured() {
        let pod = pod(&json!({"huawei.com/AscendReal": "Ascend910-3, Ascend910-4"}), "Pending")
            .expect("it uses NPUs");
        assert_eq!((pod.granted.as_slice(), pod.configured.as_ref()), (&[3, 4][..], None));
        assert!(pod.uses(Subject::Npu(4)) && pod.ranks(Subject::Npu(4)).is_empty());
    }

    #[test]
    fn ended_pods_and_pods_without_npus_are_left_out() {
        assert_eq!(pod(&json!({}), "Running"), None);
        assert_eq!(pod(&json!({"huawei.com/npu": "npu-1"}), "Succeeded"), None);
        assert_eq!(NpuPod::read(b"[]"), None);
    }

    #[test]
    fn unreadable_configuration_names_no_device() {
        for text in ["", "{}", r#"{"devices":[{"device_id":"x"}]}"#, r#"{"devices":[{"device_id":3}]}"#] {
            let pod = pod(&json!({CONFIGURATION: text}), "Running").expect("it has one");
            assert_eq!(pod.configured, None, "{text}");
        }
    }
}
