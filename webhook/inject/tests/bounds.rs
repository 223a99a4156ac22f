//! Objects that would become too large are left alone.

use serde_json::{Value, json};
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::reason::Reason;
use swansong_inject::workload::WorkloadKind;

/// Limit of an API server for requests.
const REQUEST: usize = 3 << 20;

fn is_left_alone(kind: WorkloadKind, object: &Value) {
    let text = object.to_string();
    assert!(text.len() < REQUEST, "{}", text.len());
    let outcome = inject(kind, &text, &Policy::default()).expect("sound");
    assert_eq!(outcome.skip, Some(Reason::ObjectTooLarge));
    assert!(outcome.operations.is_empty() && outcome.templates.is_empty());
    let reasons: Vec<Reason> = outcome.warnings.iter().map(|warning| warning.reason).collect();
    assert_eq!(reasons, [Reason::ObjectTooLarge]);
}

fn container(name: &str) -> Value {
    json!({ "name": name, "resources": { "limits": { "huawei.com/Ascend910": 1 } } })
}

fn volcano(tasks: usize, annotations: &Value) -> Value {
    let task = json!({ "template": { "spec": { "containers": [{ "name": "ascend" }] } } });
    json!({ "kind": "Job", "metadata": { "annotations": annotations }, "spec": { "tasks": vec![task; tasks] } })
}

#[test]
fn too_many_templates_are_left_alone() {
    is_left_alone(WorkloadKind::VolcanoJob, &volcano(40_000, &json!({ "recover-strategy": "dump" })));
}

#[test]
fn a_long_path_for_many_containers_is_left_alone() {
    let containers: Vec<Value> = (0..5_000).map(|number| container(&format!("c{number}"))).collect();
    for key in ["swansong.dev/libtaskd", "swansong.dev/libmspti"] {
        let annotations = json!({ "recover-strategy": "dump", key: format!("/{}", "x".repeat(250_000)) });
        let pod = json!({ "kind": "Pod", "metadata": { "annotations": annotations }, "spec": { "containers": containers } });
        is_left_alone(WorkloadKind::Pod, &pod);
    }
}

#[test]
fn a_long_annotation_for_many_templates_is_left_alone() {
    let long = "x,".repeat(125_000);
    for annotations in [
        json!({ "recover-strategy": format!("dump,{long}") }),
        json!({ "recover-strategy": "dump", "swansong.dev/containers": long }),
        json!({ "recover-strategy": "dump", "swansong.dev/skip-preload": long }),
        json!({ "recover-strategy": "dump", "swansong.dev/inject": long }),
    ] {
        is_left_alone(WorkloadKind::VolcanoJob, &volcano(5_000, &annotations));
    }
}

#[test]
fn a_job_of_a_thousand_templates_is_injected() {
    let job = volcano(1_000, &json!({ "recover-strategy": "dump" }));
    let outcome = inject(WorkloadKind::VolcanoJob, &job.to_string(), &Policy::default()).expect("sound");
    assert_eq!(outcome.skip, None);
    assert_eq!(outcome.templates.len(), 1_000);
}
