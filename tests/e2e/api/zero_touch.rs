//! Unusual Pods that an API server accepts: it accepts them as well with every part of zero touch.

use serde_json::{Value, json};
use swansong_inject::undo::uninject;
use swansong_inject::workload::WorkloadKind;

use crate::support::{asking_pod, create, examine, rig};

const PARTS: [(&str, &str); 3] = [
    ("swansong.dev/libraries", "discover"),
    ("swansong.dev/manager", "sidecar"),
    ("swansong.dev/reset-config", "configMap"),
];

/// Names, and what the spec has besides its one training container; `container` is merged into that.
fn cases() -> Vec<(&'static str, Value, Value)> {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "4Gi"}, "limits": {"cpu": cpu, "memory": "4Gi"}});
    let restricted = json!({
        "runAsNonRoot": true, "runAsUser": 1000, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    vec![
        ("pod-level-resources", json!({"resources": resources("8")}), json!({"resources": resources("8")})),
        ("guaranteed", json!({}), json!({"resources": resources("8")})),
        ("restricted", json!({}), json!({"securityContext": restricted})),
        ("host-network", json!({"hostNetwork": true, "hostPID": true}), json!({})),
        ("one-process-namespace", json!({"shareProcessNamespace": true}), json!({})),
        (
            "init-containers",
            json!({"initContainers": [
                {"name": "prepare", "image": "tools"},
                {"name": "proxy", "image": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 9601}]},
            ]}),
            json!({}),
        ),
        (
            "mounts",
            json!({"volumes": [
                {"name": "data", "emptyDir": {}}, {"name": "image", "image": {"reference": "data:1"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "checkpoints"}},
            ]}),
            json!({
                "env": [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data", "subPathExpr": "$(NAME)"},
                    {"name": "data", "mountPath": "/opt/swansong/data", "subPath": "a b"},
                    {"name": "image", "mountPath": "/image", "readOnly": true},
                    {"name": "claim", "mountPath": "/checkpoints", "readOnly": true, "recursiveReadOnly": "Enabled"},
                ],
            }),
        ),
        (
            "references",
            json!({}),
            json!({
                "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "X_"}],
                "env": [
                    {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"containerName": "ascend", "resource": "limits.cpu"}}},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
                    {"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                ],
            }),
        ),
        (
            "probes-and-hooks",
            json!({"terminationGracePeriodSeconds": 0, "activeDeadlineSeconds": 60}),
            json!({
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                "startupProbe": {"exec": {"command": ["true"]}}, "stdin": true, "tty": true,
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }),
        ),
    ]
}

fn pod(name: &str, spec: Value, container: Value) -> Value {
    let mut pod = asking_pod(name, &json!([{"name": "ascend", "image": "train"}]));
    pod["spec"]["containers"][0].as_object_mut().unwrap().extend(members(container));
    pod["spec"].as_object_mut().unwrap().extend(members(spec));
    pod
}

fn members(value: Value) -> serde_json::Map<String, Value> {
    let Value::Object(members) = value else { panic!("an object") };
    members
}

/// The Pod with every part, as the webhook stores it where it knows the version of Kubernetes.
fn complete(mut pod: Value) -> Value {
    for (key, value) in PARTS {
        pod["metadata"]["annotations"][key] = json!(value);
    }
    pod["metadata"]["labels"]["training.kubeflow.org/job-name"] = json!("llama");
    pod["metadata"]["labels"]["training.kubeflow.org/job-role"] = json!("master");
    let outcome = examine(&pod);
    let operations = serde_json::to_value(&outcome.operations).unwrap();
    json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(operations).unwrap()).unwrap();
    pod
}

#[tokio::test]
async fn unusual_pods_are_stored_with_every_part_of_zero_touch() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("zero-touch").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    for (name, spec, container) in cases() {
        let mut plain = pod(&format!("{name}-plain"), spec.clone(), container.clone());
        plain["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
        let plain = create(&client, &namespace, plain).await;
        plain.unwrap_or_else(|error| panic!("without Swansong, {name}: {error}"));
        let stored = create(&client, &namespace, complete(pod(name, spec, container))).await;
        let stored = stored.unwrap_or_else(|error| panic!("{name}: {error}"));
        let volumes = stored["spec"]["volumes"].as_array().into_iter().flatten();
        let containers = stored["spec"]["initContainers"].as_array().into_iter().flatten();
        let added: Vec<&str> = containers
            .chain(volumes)
            .filter_map(|part| part["name"].as_str().filter(|name| name.starts_with("swansong-")))
            .collect();
        let expected = [
            "swansong-libraries",
            "swansong-manager",
            "swansong-launcher-hook",
            "swansong-libraries",
            "swansong-reset-config",
        ];
        assert_eq!(added, expected, "{name}");
        assert!(examine(&stored).operations.is_empty(), "{name}: a second pass has nothing to do");
        let undo = uninject(WorkloadKind::Pod, &stored.to_string()).unwrap();
        assert_eq!(undo.remaining.len(), 0, "{name}: {:?}", undo.remaining);
    }
}

#[tokio::test]
async fn a_restricted_namespace_takes_a_restricted_pod_with_every_part() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("zero-touch-restricted").await.unwrap();
    let label = "pod-security.kubernetes.io/enforce=restricted";
    rig.cluster.kubectl(&["label", "namespace", &namespace, label]).await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let (name, spec, container) =
        cases().into_iter().find(|(name, ..)| *name == "restricted").expect("a case");
    let stored = create(&client, &namespace, complete(pod(name, spec, container))).await.unwrap();
    assert_eq!(stored["spec"]["initContainers"].as_array().map(Vec::len), Some(2));
}
