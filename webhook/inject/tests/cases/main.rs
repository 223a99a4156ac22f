//! Expected behaviour where comparable software had public bug reports, which the comments name.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod dump;
mod hazards;
mod launcher_hook;
mod lossy_patches;
mod node_readiness;
mod ports;
mod preload_and_env;
mod selection;
mod strategies;
#[path = "../support/mod.rs"]
mod support;
mod undo;
mod zero_touch;

use serde_json::{Value, json};
use support::{MSPTI, TASKD, env_of, ours, pod, run};
use swansong_inject::inject;
use swansong_inject::policy::{DumpPolicy, Policy, PreloadOrder, PreloadValueFrom};
use swansong_inject::reason::Reason;
use swansong_inject::report::ActionKind;
use swansong_inject::workload::WorkloadKind;

/// A pod that asks for a dump, with these containers.
fn pod_with(containers: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train", "annotations": {"recover-strategy": "dump"}},
        "spec": {"containers": containers},
    })
}

/// The same with one container called `ascend`.
fn ascend(fields: Value) -> Value {
    let mut container = json!({"name": "ascend", "image": "train:1"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    pod_with(json!([container]))
}

fn names(list: &Value, key: &str) -> Vec<Value> {
    list.as_array().unwrap().iter().map(|item| item[key].clone()).collect()
}

/// Reported as HAMi#2253, #2415, netbirdio#246.
#[test]
fn wrong_types_name_their_field() {
    for (object, field) in [
        (json!({"kind": "Pod", "spec": {"containers": {}}}), "spec.containers"),
        (
            json!({"kind": "Pod", "spec": {"containers": [{"env": [{"name": 5}]}]}}),
            "spec.containers[0].env[0].name",
        ),
        (json!({"kind": "Pod", "spec": {"containers": [null]}}), "spec.containers[0]"),
        (
            json!({"kind": "Pod", "metadata": {"annotations": {"recover-strategy": true}}}),
            "metadata.annotations.recover-strategy",
        ),
        (json!({"kind": "Pod", "spec": {"hostNetwork": "yes"}}), "spec.hostNetwork"),
        (json!([]), "."),
        (json!({"kind": "Pod", "metadata": []}), "metadata"),
        (
            json!({"kind": "Pod", "spec": {"containers": [{"ports": [{"containerPort": "8000"}]}]}}),
            "spec.containers[0].ports[0].containerPort",
        ),
    ] {
        let error = inject(WorkloadKind::Pod, &object.to_string(), &Policy::default()).expect_err("refused");
        assert_eq!(error.field, field, "{object}: {error}");
        assert!(!error.message.contains("i64"), "{error}");
    }
}
