//! What the user wrote between the injection and its undo.

use super::*;
use crate::support::undone;
use swansong_inject::undo;

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

/// An injected Pod after an edit, and the same taken back.
fn edited(env: Value, edit: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod(&ascend(json!({"env": env}))).object;
    edit(&mut pod["spec"]["containers"][0]);
    undone(WorkloadKind::Pod, &pod)["spec"]["containers"][0].clone()
}

/// The entry of a variable.
fn entry<'v>(container: &'v mut Value, name: &str) -> &'v mut Value {
    let env = container["env"].as_array_mut().expect("entries");
    env.iter_mut().find(|entry| entry["name"] == name).expect(name)
}

#[test]
fn values_that_the_user_changed_since_stay() {
    let undone = edited(json!([]), |container| {
        entry(container, "TTP_PORT")["value"] = "29500".into();
        container["ports"][1]["name"] = "mine".into();
    });
    assert_eq!(undone["env"], json!([{"name": "TTP_PORT", "value": "29500"}]));
    assert_eq!(undone["ports"], json!([{"containerPort": 9601, "name": "mine", "protocol": "TCP"}]));
}

#[test]
fn only_our_libraries_leave_a_preload_that_the_user_changed_since() {
    let value = |text: &str| json!([{"name": "LD_PRELOAD", "value": text}]);
    for (before, now, after) in [
        // Joined to what was there.
        (value("/a.so  /b.so"), "{}:/c.so", value("/a.so:/b.so:/c.so")),
        (value("/a.so  /b.so"), "{}", value("/a.so  /b.so")),
        (value("/a.so"), "/mine.so", value("/mine.so")),
        // An entry of ours.
        (json!([]), "{}:/c.so", value("/c.so")),
        (json!([]), "{}", json!([])),
        (json!([]), "", value("")),
    ] {
        let undone = edited(before.clone(), |container| {
            let entry = entry(container, "LD_PRELOAD");
            let joined = now.replace("{}", entry["value"].as_str().expect("text"));
            entry["value"] = joined.into();
        });
        assert_eq!(undone["env"], after, "{before} {now}");
    }
}

#[test]
fn a_referenced_preload_gets_its_name_back_unless_the_user_builds_on_it() {
    let source = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    let before = json!([{"name": "LD_PRELOAD", "valueFrom": source}]);
    assert_eq!(edited(before.clone(), |_| {})["env"], before);
    let undone = edited(before, |container| {
        let entry = entry(container, "LD_PRELOAD");
        entry["value"] = format!("{}:/c.so", entry["value"].as_str().expect("text")).into();
    });
    assert_eq!(
        undone["env"],
        json!([
            {"name": "SWANSONG_ORIGINAL_LD_PRELOAD", "valueFrom": source},
            {"name": "LD_PRELOAD", "value": "$(SWANSONG_ORIGINAL_LD_PRELOAD):/c.so"},
        ])
    );
}

#[test]
fn what_stays_is_said() {
    let mut pod = pod(&ascend(json!({}))).object;
    entry(&mut pod["spec"]["containers"][0], "TTP_PORT")["value"] = "1".into();
    let undo = undo::uninject(WorkloadKind::Pod, &pod.to_string()).expect("a record");
    assert_eq!(undo.stays, ["container ascend: env TTP_PORT was changed since and stays"]);
    pod["spec"]["containers"][0]["name"] = "renamed".into();
    let undo = undo::uninject(WorkloadKind::Pod, &pod.to_string()).expect("a record");
    assert!(undo.stays[0].starts_with("there is no container ascend any more"), "{:?}", undo.stays);
}
