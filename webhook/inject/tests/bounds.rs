//! Objects that would become too large are left unchanged.

mod support;

use serde_json::{Value, json};
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::reason::Reason;
use swansong_inject::workload::WorkloadKind;

/// Limit of an API server for requests.
const REQUEST: usize = 3 << 20;

fn is_left_unchanged(kind: WorkloadKind, object: &Value) {
    is_left_unchanged_for(kind, object, Reason::ObjectTooLarge);
}

fn is_left_unchanged_for(kind: WorkloadKind, object: &Value, reason: Reason) {
    let text = object.to_string();
    assert!(text.len() < REQUEST, "{}", text.len());
    let outcome = inject(kind, &text, &Policy::default()).expect("sound");
    assert_eq!(outcome.skip, Some(reason));
    assert!(outcome.operations.is_empty() && outcome.templates.is_empty());
    let reasons: Vec<Reason> = outcome.warnings.iter().map(|warning| warning.reason).collect();
    assert_eq!(reasons, [reason]);
}

fn container(name: &str) -> Value {
    json!({ "name": name, "resources": { "limits": { "huawei.com/Ascend910": 1 } } })
}

fn volcano(tasks: usize, annotations: &Value) -> Value {
    let task = json!({ "template": { "spec": { "containers": [{ "name": "ascend" }] } } });
    json!({ "kind": "Job", "metadata": { "annotations": annotations }, "spec": { "tasks": vec![task; tasks] } })
}

#[test]
fn too_many_templates_are_left_unchanged() {
    is_left_unchanged(WorkloadKind::VolcanoJob, &volcano(40_000, &json!({ "recover-strategy": "dump" })));
}

#[test]
fn a_long_path_for_many_containers_is_left_unchanged() {
    let containers: Vec<Value> = (0..5_000).map(|number| container(&format!("c{number}"))).collect();
    for key in ["swansong.dev/libtaskd", "swansong.dev/libmspti"] {
        let annotations = json!({ "recover-strategy": "dump", key: format!("/{}", "x".repeat(4_000)) });
        let pod = json!({ "kind": "Pod", "metadata": { "annotations": annotations }, "spec": { "containers": containers } });
        is_left_unchanged_for(WorkloadKind::Pod, &pod, Reason::AnnotationsTooLarge);
    }
}

#[test]
fn a_long_annotation_for_many_templates_is_left_unchanged() {
    let long = "x,".repeat(125_000);
    for annotations in [
        json!({ "recover-strategy": format!("dump,{long}") }),
        json!({ "recover-strategy": "dump", "swansong.dev/containers": long }),
        json!({ "recover-strategy": "dump", "swansong.dev/skip-preload": long }),
        json!({ "recover-strategy": "dump", "swansong.dev/inject": long }),
    ] {
        is_left_unchanged(WorkloadKind::VolcanoJob, &volcano(5_000, &annotations));
    }
}

#[test]
fn a_job_of_a_thousand_templates_is_injected() {
    let job = volcano(1_000, &json!({ "recover-strategy": "dump" }));
    let outcome = inject(WorkloadKind::VolcanoJob, &job.to_string(), &Policy::default()).expect("sound");
    assert_eq!(outcome.skip, None);
    assert_eq!(outcome.templates.len(), 1_000);
}

/// A Pod whose annotations have `length` bytes, counted as the API server does.
fn pod_with_annotations(length: usize) -> Value {
    let rest = length - "recover-strategy".len() - "dump".len() - "note".len();
    json!({
        "kind": "Pod",
        "metadata": { "annotations": { "recover-strategy": "dump", "note": "\"".repeat(rest) } },
        "spec": { "containers": [{ "name": "ascend" }] },
    })
}

fn annotations_length(object: &Value) -> usize {
    let annotations = object["metadata"]["annotations"].as_object().expect("annotations");
    annotations.iter().map(|(key, value)| key.len() + value.as_str().expect("a string").len()).sum()
}

#[test]
fn annotations_that_would_exceed_the_limit_are_left_unchanged() {
    const LIMIT: usize = 262_144;
    is_left_unchanged_for(WorkloadKind::Pod, &pod_with_annotations(LIMIT - 244), Reason::AnnotationsTooLarge);
    let mut left_unchanged = 0;
    for room in (0..1_000).step_by(20) {
        let object = pod_with_annotations(LIMIT - room);
        let injected = support::pod(&object);
        left_unchanged += usize::from(injected.outcome.skip.is_some());
        assert!(annotations_length(&injected.object) <= LIMIT, "{room}");
    }
    assert!((1..50).contains(&left_unchanged), "{left_unchanged}");

    let template = json!({ "metadata": pod_with_annotations(LIMIT - 300)["metadata"], "spec": { "containers": [{ "name": "ascend" }] } });
    let job = json!({ "kind": "Job", "spec": { "tasks": [{ "template": template }] } });
    is_left_unchanged_for(WorkloadKind::VolcanoJob, &job, Reason::AnnotationsTooLarge);
}

#[test]
fn an_object_near_the_limit_of_etcd_is_left_unchanged() {
    let pod = |length: usize| {
        json!({
            "kind": "Pod", "metadata": { "annotations": { "recover-strategy": "dump" } },
            "spec": { "containers": [{ "name": "ascend", "args": ["x".repeat(length)] }] },
        })
    };
    is_left_unchanged(WorkloadKind::Pod, &pod(1_570_000));
    assert_eq!(support::pod(&pod(1_400_000)).outcome.skip, None);
}

/// The record has digests of long values, so a large LD_PRELOAD or strategy isn't stored twice.
#[test]
fn the_record_has_no_long_values() {
    let preload = format!("/lib/{}.so", "a".repeat(270_000));
    let pod = json!({
        "kind": "Pod", "metadata": { "annotations": { "recover-strategy": "dump" } },
        "spec": { "containers": [{ "name": "ascend", "env": [{ "name": "LD_PRELOAD", "value": preload }] }] },
    });
    let injected = support::pod(&pod);
    let record =
        injected.object["metadata"]["annotations"]["swansong.dev/injected"].as_str().expect("a record");
    assert!(record.len() < 800, "{}", record.len());
    assert_eq!(support::undone(WorkloadKind::Pod, &injected.object), pod);

    let names = "c,".repeat(20_000);
    let job = volcano(2, &json!({ "recover-strategy": "dump", "swansong.dev/skip-preload": names }));
    let injected = support::run(WorkloadKind::VolcanoJob, &job, &Policy::default()).object;
    let annotations = &injected["spec"]["tasks"][0]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["swansong.dev/skip-preload"], names);
    assert!(annotations["swansong.dev/injected"].as_str().expect("a record").len() < 800);
    assert_eq!(support::undone(WorkloadKind::VolcanoJob, &injected), job);
}
