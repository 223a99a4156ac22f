//! The objects of a healthy installation with one job, as their owners make them.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use swansong_fixtures::mindcluster::{config_map, device_info};

pub(super) const NODES: [&str; 2] = ["npu-a", "npu-b"];
pub(super) const PODS: [&str; 2] = ["bert-master-0", "bert-worker-0"];
pub(super) const NAMESPACE: &str = "ml";
/// The id of a fault of the first node.
pub(super) const FAULT: &str = "npu-a.npu3.40F84E00.1796000000000";

pub(super) fn millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// A time of the API, so long ago.
pub(super) fn ago(ago: Duration) -> String {
    let at = i64::try_from(millis()).unwrap() / 1000 - i64::try_from(ago.as_secs()).unwrap();
    k8s_openapi::jiff::Timestamp::from_second(at).unwrap().to_string()
}

pub(super) fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "a text", "lastHeartbeatTime": ago(Duration::from_mins(2))})
}

pub(super) fn conditions() -> Value {
    json!([condition("DumpReady", "True", "ChecksPass"), condition("FaultsRelayed", "True", "AllRelayed")])
}

pub(super) fn rehearsal(status: &str, at: u64) -> Value {
    json!({"request": "1", "at": at, "status": status, "message": "a text"}).to_string().into()
}

pub(super) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {"swansong.dev/rehearsal": rehearsal("pass", millis())}},
        "status": {"conditions": conditions()},
    })
}

/// Definitions of Volcano, beside those of the demo.
pub(super) fn definition(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.scheduling.volcano.sh")},
        "spec": {
            "group": "scheduling.volcano.sh", "scope": scope,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

pub(super) fn service(namespace: &str, name: &str, ports: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": {"ports": ports}})
}

pub(super) fn endpoints(namespace: &str, service: &str, address: IpAddr, port: &Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-1"), "namespace": namespace, "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [port],
    })
}

/// What MindCluster's components keep.
pub(super) fn mindcluster(address: IpAddr) -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"}, "status": {"state": "Open"}}),
        service("mindx-dl", "clusterd-grpc-svc", &json!([{"port": 8899}])),
        endpoints("mindx-dl", "clusterd-grpc-svc", address, &json!({"port": 8899})),
        in_namespace(config_map("cluster-info-device-0", &json!({"DeviceInfo": "{}"})), "mindx-dl"),
    ];
    objects.extend(NODES.map(|name| in_namespace(device_info(name), "kube-system")));
    objects
}

pub(super) fn job() -> Value {
    let template = json!({"spec": {"containers": [
        {"name": "ascend", "image": "training", "resources": {"limits": {"huawei.com/Ascend910": "2"}, "requests": {"huawei.com/Ascend910": "2"}}},
    ]}});
    let replica = json!({"replicas": 1, "restartPolicy": "Never", "template": template});
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {
            "name": "bert", "namespace": NAMESPACE,
            "labels": {"framework": "pytorch", "fault-retry-times": "3", "fault-scheduling": "grace"},
            "annotations": {"recover-strategy": "dump"},
        },
        "spec": {"schedulerName": "volcano", "replicaSpecs": {"Master": replica, "Worker": replica}},
    })
}

/// What belongs to the job, beside its Service and Pods.
pub(super) fn of_job(address: IpAddr) -> Vec<Value> {
    let reset = json!({"reset.json": json!({"RankList": [], "UpdateTime": 0, "RetryTime": 0}).to_string(), "checkCode": ""});
    vec![
        json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {
                "name": "bert-1", "namespace": NAMESPACE, "labels": {"process-recover-enable": "on"},
                "annotations": {"recover-strategy": "dump"},
            },
            "spec": {"queue": "default"},
        }),
        in_namespace(config_map("reset-config-bert", &reset), NAMESPACE),
        in_namespace(config_map("job-summary-bert", &json!({"job_status": "running"})), NAMESPACE),
        endpoints(NAMESPACE, "bert-master-0", address, &json!({"port": 2222})),
    ]
}

/// A Pod of the operator, as device plugin and scheduler complete it.
pub(super) fn scheduled(mut pod: Value, rank: usize, group: &str, node: &str) -> Value {
    let name = pod["metadata"]["name"].clone();
    let devices =
        json!([{"device_id": "0", "device_ip": "10.0.1.0"}, {"device_id": "1", "device_ip": "10.0.1.1"}]);
    let annotations = [
        (
            "ascend.kubectl.kubernetes.io/ascend-910-configuration",
            json!({"pod_name": name, "server_id": "10.0.0.1", "devices": devices}).to_string(),
        ),
        ("scheduling.k8s.io/group-name", group.to_owned()),
        ("hccl/rankIndex", rank.to_string()),
    ];
    for (name, value) in annotations {
        pod["metadata"]["annotations"][name] = value.into();
    }
    pod["spec"]["nodeName"] = node.into();
    pod
}

/// An Event of the first node's agent about a fault, so many seconds after it.
pub(super) fn fault_event(
    kind: &str,
    name: &str,
    uid: &Value,
    reason: &str,
    text: &str,
    second: u64,
) -> Value {
    let namespace = if kind == "Node" { "default" } else { NAMESPACE };
    let mut object = json!({"kind": kind, "name": name, "uid": uid});
    if kind != "Node" {
        object["namespace"] = NAMESPACE.into();
    }
    let time = ago(Duration::from_secs(60 - second));
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": format!("{name}.{reason}").to_lowercase(), "namespace": namespace,
            "annotations": {"swansong.dev/fault-id": FAULT},
        },
        "involvedObject": object, "reason": reason, "message": text, "type": "Warning",
        "source": {"component": "swansong-agent", "host": NODES[0]},
        "reportingComponent": "swansong-agent", "reportingInstance": NODES[0],
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    })
}

/// A Pod that an agent sees.
pub(super) struct SeenPod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) address: IpAddr,
    pub(super) is_first: bool,
}

/// What an agent shows of Pods.
pub(super) fn agent_status(pods: &[SeenPod]) -> Value {
    let seen = pods.iter().map(|SeenPod { name, uid, address, is_first }| {
        let listening = json!([{"port": 8000, "address": address}, {"port": 9601, "address": address}]);
        let environment = json!({"POD_IP": address, "TTP_PORT": "8000", "TTP_NORMAL_ACTION_TIME_LIMIT": "1800"});
        let is_first = *is_first;
        json!({
            "namespace": NAMESPACE, "name": name, "uid": uid, "container": "ascend", "observedAt": millis(),
            "listening": if is_first { listening } else { json!([]) }, "connected": 2, "accepted": if is_first { 4 } else { 0 },
            "processors": [{"pid": 7, "rank": 0, "connections": 1}, {"pid": 8, "rank": 1, "connections": 1}],
            "trainer": {"verdict": "can", "message": "a text"},
            "manager": if is_first { json!({"pid": 5, "environment": environment}) } else { Value::Null },
        })
    });
    let verdicts = pods.iter().map(|SeenPod { name, uid, .. }| {
        json!({"uid": uid, "namespace": NAMESPACE, "name": name, "containers": [{
            "name": "ascend", "outcome": "Live", "reason": "PreloadLive", "message": "a text", "judged": 2, "missing": [],
            "launcherHook": {"isActive": true, "reason": "HookActive", "message": "a text"},
            "missingEnvironment": [], "image": {"findings": [{"check": "taskd", "status": "ok", "message": "a text"}]},
        }]})
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "report": {"node": "n", "ready": "True", "checks": [
            {"name": "clusterd", "status": "pass", "reason": "ClusterdReachable", "message": "a text"},
        ]},
        "preload": verdicts.collect::<Vec<_>>(),
        "pods": seen.collect::<Vec<_>>(),
    })
}
