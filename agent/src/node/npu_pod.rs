//! The part of a Pod that the fault pipeline needs.

use std::borrow::Cow;

use serde::Deserialize;
use swansong_api::annotations::{CONTAINERS, FAST_DUMP, flag};
use swansong_api::env::{MS_TFT_PORT, SAVE_LIMIT, TTP_PORT};
use swansong_faults::{DumpSettings, NpuPod, Owner, PodReference, RANK};

use super::object::{Container, PodObject};

/// The devices that the device plugin mounted, from which ClusterD knows ranks (`ascend-common/api`,
/// `docs/en/scheduling/api/k8s.md`).
const CONFIGURATION: &str = "ascend.kubectl.kubernetes.io/ascend-910-configuration";
/// The devices that were mounted, and those that the scheduler chose, in this order.
const GRANTED: [&str; 3] = ["huawei.com/AscendReal", "huawei.com/Ascend910", "huawei.com/npu"];
const GROUP: &str = "scheduling.k8s.io/group-name";
/// The kinds of jobs that have a PodGroup with a strategy.
const JOBS: [&str; 2] = ["AscendJob", "Job"];
/// The training container of ascend-operator.
const TRAINING: &str = "ascend";
/// The port that MindSpeed-LLM connects to, independent of the environment.
const DEFAULT_PORT: u16 = 8000;

impl PodObject {
    /// The Pod, if it uses NPUs and hasn't ended.
    pub fn npu_pod(&self) -> Option<NpuPod> {
        let annotations = self.metadata.annotations.as_ref()?;
        let annotation = |name: &str| annotations.get(name).map(String::as_str);
        let configured = annotation(CONFIGURATION).map(configured);
        let granted = GRANTED.iter().find_map(|name| annotation(name)).map(granted).unwrap_or_default();
        if (configured.is_none() && granted.is_empty()) || self.has_ended() {
            return None;
        }
        let containers = self.spec.as_ref().and_then(|spec| spec.containers.as_deref()).unwrap_or_default();
        let container = training_container(containers, annotation(CONTAINERS));
        let owners = self.metadata.owner_references.iter().flatten();
        let job = owners.filter(|owner| JOBS.contains(&owner.kind.as_str())).map(|owner| Owner {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        });
        let own = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(NpuPod {
            reference: PodReference {
                namespace: own(&self.metadata.namespace),
                name: own(&self.metadata.name),
                uid: own(&self.metadata.uid),
                container: container.map(|container| container.name.clone()).unwrap_or_default(),
                group: annotation(GROUP).map(str::to_owned),
                job: { job }.next(),
            },
            is_running: self.phase() == Some("Running"),
            configured: configured.flatten(),
            granted,
            rank: annotation(RANK).and_then(|rank| rank.trim().parse().ok()),
            dump: DumpSettings {
                container_id: container.and_then(|container| self.container_id(&container.name)),
                is_fast: annotation(FAST_DUMP).is_some_and(|value| flag(value) == Some(true)),
                has_hook: self.has_launcher_hook(),
                ports: container.map(ports).unwrap_or_default(),
                save_limit: DumpSettings::save_limit_of(container.and_then(save_limit)),
            },
        })
    }
}

/// The training container, chosen as the webhook does: of those that the annotation names, or of all, the one called `ascend`,
/// else the one that requests NPUs, else the first.
fn training_container<'a>(containers: &'a [Container], annotation: Option<&str>) -> Option<&'a Container> {
    let names: Vec<&str> = annotation.unwrap_or_default().split(',').map(str::trim).collect();
    let mut candidates: Vec<&Container> =
        containers.iter().filter(|container| names.contains(&container.name.as_str())).collect();
    if candidates.is_empty() {
        candidates.extend(containers);
    }
    let find = |is_chosen: fn(&Container) -> bool| candidates.iter().find(|container| is_chosen(container));
    find(|container| container.name == TRAINING)
        .or_else(|| find(Container::requests_npu))
        .or_else(|| candidates.first())
        .copied()
}

/// The value of the limit for saving, empty if it comes from another object.
fn save_limit(container: &Container) -> Option<&str> {
    let is_set = container.env.iter().flatten().any(|variable| variable.name == SAVE_LIMIT);
    is_set.then(|| container.variable(SAVE_LIMIT).unwrap_or_default())
}

/// The ports of MindIO's controller.
fn ports(container: &Container) -> Vec<u16> {
    let names = [TTP_PORT, MS_TFT_PORT];
    let configured = names.iter().filter_map(|name| container.variable(name)?.trim().parse().ok());
    [DEFAULT_PORT].into_iter().chain(configured).collect()
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use swansong_fault_model::Subject;

    use super::*;

    fn pod(annotations: &Value, phase: &str) -> Option<NpuPod> {
        let owner = json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "bert", "uid": "j", "controller": true});
        let env = json!([{"name": TTP_PORT, "value": "8001"}, {"name": SAVE_LIMIT, "value": "1800"}]);
        let pod = json!({
            "metadata": {"name": "bert-worker-0", "namespace": "ml", "uid": "u", "annotations": annotations, "ownerReferences": [owner]},
            "spec": {
                "containers": [{"name": "side"}, {"name": "ascend", "env": env}],
                "volumes": [{"name": "swansong-launcher-hook"}],
            },
            "status": {"phase": phase, "containerStatuses": [{"name": "ascend", "containerID": "containerd://abc"}]},
        });
        serde_json::from_value::<PodObject>(pod).expect("a Pod").npu_pod()
    }

    fn configuration(ids: &[&str]) -> String {
        let devices: Vec<_> =
            ids.iter().map(|id| json!({"device_id": id, "device_ip": "10.0.0.1"})).collect();
        json!({"pod_name": "bert-worker-0", "server_id": "10.0.0.9", "devices": devices}).to_string()
    }

    #[test]
    fn pod_of_a_job_is_read() {
        let annotations = json!({
            CONFIGURATION: configuration(&["2", "3"]), RANK: "1", GROUP: "bert-j",
            FAST_DUMP: "True", "swansong.dev/launcher-hook.py": "…",
        });
        let pod = pod(&annotations, "Running").expect("it uses NPUs");
        assert!(pod.uses(Subject::Npu(3)) && !pod.uses(Subject::Npu(8)) && pod.uses(Subject::Node));
        assert_eq!((pod.ranks().devices, pod.ranks().rank, pod.is_running), (&[2, 3][..], Some(1), true));
        assert_eq!(pod.reference.container, "ascend");
        assert_eq!(pod.reference.job.map(|job| job.name).as_deref(), Some("bert"));
        let dump = DumpSettings {
            container_id: Some("abc".to_owned()),
            is_fast: true,
            has_hook: true,
            ports: vec![8000, 8001],
            save_limit: Duration::from_mins(30),
        };
        assert_eq!(pod.dump, dump);
    }

    #[test]
    fn training_container_is_the_one_that_the_webhook_injects() {
        let containers = |names: &[&str]| -> Vec<Container> {
            let container = |name: &&str| {
                let count = if name.starts_with("npu") { "8" } else { "0" };
                json!({"name": name, "resources": {"requests": {"huawei.com/Ascend910": count, "cpu": "1"}}})
            };
            let containers = names.iter().map(container).collect();
            serde_json::from_value(Value::Array(containers)).expect("containers")
        };
        for (names, annotation, expected) in [
            (&["side", "npu", "ascend"][..], None, Some("ascend")),
            (&["side", "npu"], None, Some("npu")),
            (&["side", "other"], None, Some("side")),
            (&["side", "npu", "ascend"], Some("side"), Some("side")),
            (&["side", "npu", "ascend"], Some("side, npu"), Some("npu")),
            (&["side", "npu"], Some("gone"), Some("npu")),
            (&["side", "npu"], Some(""), Some("npu")),
            (&[], None, None),
        ] {
            let containers = containers(names);
            let chosen = training_container(&containers, annotation);
            let chosen = chosen.map(|container| container.name.as_str());
            assert_eq!(chosen, expected, "{names:?}, {annotation:?}");
        }
    }

    #[test]
    fn limit_from_another_object_is_unknown() {
        let limit = |env: Value| {
            let container: Container = serde_json::from_value(json!({"name": "a", "env": env})).expect("one");
            save_limit(&container).map(str::to_owned)
        };
        assert_eq!(limit(json!([])), None);
        assert_eq!(limit(json!([{"name": SAVE_LIMIT, "value": "600"}])).as_deref(), Some("600"));
        assert_eq!(limit(json!([{"name": SAVE_LIMIT, "valueFrom": {}}])).as_deref(), Some(""));
    }

    #[test]
    fn granted_devices_are_used_though_not_configured() {
        let pod = pod(&json!({"huawei.com/AscendReal": "Ascend910-3, Ascend910-4"}), "Pending")
            .expect("it uses NPUs");
        assert_eq!((pod.granted.as_slice(), pod.configured.as_ref()), (&[3, 4][..], None));
        assert!(pod.uses(Subject::Npu(4)) && !pod.dump.has_hook, "a volume alone is no hook");
    }

    #[test]
    fn ended_pods_and_pods_without_npus_are_left_out() {
        assert_eq!(pod(&json!({}), "Running"), None);
        assert_eq!(pod(&json!({"huawei.com/npu": "npu-1"}), "Succeeded"), None);
        assert_eq!(PodObject::default().npu_pod(), None);
    }

    #[test]
    fn unreadable_configuration_names_no_device() {
        for text in ["", "{}", r#"{"devices":[{"device_id":"x"}]}"#, r#"{"devices":[{"device_id":3}]}"#] {
            let pod = pod(&json!({CONFIGURATION: text}), "Running").expect("it has one");
            assert_eq!(pod.configured, None, "{text}");
        }
    }
}
