//! What the user wrote between the injection and its undo.

use super::*;
use crate::support::undone;

#[test]
fn metadata_that_the_user_filled_since_stays() {
    for former in [None, Some(Value::Null)] {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "train", "annotations": {"recover-strategy": "dump"}},
            "spec": {"template": {"spec": {"containers": [{"name": "ascend"}]}}},
        });
        if let Some(former) = former {
            object["spec"]["template"]["metadata"] = former;
        }
        let injected = run(WorkloadKind::Deployment, &object, &Policy::default()).object;
        assert_eq!(undone(WorkloadKind::Deployment, &injected), object);
        for (key, value) in [
            ("finalizers", json!(["example.com/f"])),
            ("name", json!("n")),
            ("labels", json!({"app": "train"})),
        ] {
            let mut changed = injected.clone();
            changed["spec"]["template"]["metadata"][key] = value.clone();
            let mut expected = object.clone();
            expected["spec"]["template"]["metadata"] = json!({key: value});
            assert_eq!(undone(WorkloadKind::Deployment, &changed), expected);
        }
    }
}

#[test]
fn a_strategy_that_the_user_changed_since_stays() {
    let object = json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "train", "labels": {"a": "b"}, "annotations": {"recover-strategy": "retry, dump"}},
        "spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "ascend"}]}}}}},
    });
    let injected = run(WorkloadKind::AscendJob, &object, &Policy::default()).object;
    assert_eq!(injected["metadata"]["annotations"]["recover-strategy"], "retry,dump");
    assert_eq!(undone(WorkloadKind::AscendJob, &injected), object);

    let mut changed = injected.clone();
    changed["metadata"]["annotations"]["recover-strategy"] = json!("dump,exit");
    let undone_changed = undone(WorkloadKind::AscendJob, &changed);
    assert_eq!(undone_changed["metadata"]["annotations"], json!({"recover-strategy": "dump,exit"}));

    let mut removed = injected;
    removed["metadata"]["annotations"].as_object_mut().unwrap().remove("recover-strategy");
    assert_eq!(undone(WorkloadKind::AscendJob, &removed)["metadata"]["annotations"], json!({}));
}
