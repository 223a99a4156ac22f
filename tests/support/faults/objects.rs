//! The objects that a fault's way depends on, as MindCluster and Volcano make them; for the tests on real clusters.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The definition of Volcano's PodGroup.
pub(crate) fn pod_group_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "podgroups.scheduling.volcano.sh"},
        "spec": {
            "group": "scheduling.volcano.sh", "scope": "Namespaced",
            "names": {"kind": "PodGroup", "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

/// A ConfigMap.
pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// What the device plugin publishes of a node while all is well; in kube-system.
pub(crate) fn device_info(node: &str) -> Value {
    let list = BTreeMap::from(
        [("huawei.com/Ascend910", "Ascend910-0"), ("huawei.com/Ascend910-Fault", "[]")]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let code = swansong_fault_model::device_plugin::check_code(&list, 1);
    let info = json!({
        "DeviceInfo": {"DeviceList": list, "UpdateTime": 1},
        "SuperPodID": -2, "ServerIndex": -2, "CheckCode": code,
    });
    config_map(&format!("mindx-dl-deviceinfo-{node}"), &json!({"DeviceInfoCfg": info.to_string()}))
}

/// The PodGroup of the job `bert`, which dumps.
pub(crate) fn pod_group() -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {
        "name": "bert-1", "labels": {"process-recover-enable": "on"}, "annotations": {"recover-strategy": "dump"},
    }})
}

/// What ClusterD says of the running job `bert`.
pub(crate) fn job_summary() -> Value {
    config_map("job-summary-bert", &json!({"job_status": "running"}))
}

/// The metadata of the job's one pod, which holds device 3.
pub(crate) fn pod_metadata(job_uid: &str) -> Value {
    let configuration = json!({"pod_name": "bert-master-0", "server_id": "10.0.0.1",
        "devices": [{"device_id": "3", "device_ip": "10.0.1.3"}]});
    let job = json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "bert", "uid": job_uid, "controller": true});
    json!({
        "name": "bert-master-0", "ownerReferences": [job],
        "annotations": {
            "ascend.kubectl.kubernetes.io/ascend-910-configuration": configuration.to_string(),
            "huawei.com/AscendReal": "Ascend910-3",
            "scheduling.k8s.io/group-name": "bert-1", "hccl/rankIndex": "0",
        },
    })
}
