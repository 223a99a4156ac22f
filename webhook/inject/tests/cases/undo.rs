//! The undo after changes by the user.

use super::*;
use crate::support::undone;
use swansong_inject::undo;

#[test]
fn undo_keeps_metadata_added_since() {
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
fn undo_keeps_a_strategy_changed_since() {
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

/// The container of an injected Pod after an edit and the undo.
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
fn undo_keeps_values_changed_since() {
    let undone = edited(json!([]), |container| {
        entry(container, "TTP_PORT")["value"] = "29500".into();
        container["ports"][1]["name"] = "mine".into();
    });
    assert_eq!(undone["env"], json!([{"name": "TTP_PORT", "value": "29500"}]));
    assert_eq!(undone["ports"], json!([{"containerPort": 9601, "name": "mine", "protocol": "TCP"}]));
}

#[test]
fn undo_removes_only_our_libraries_from_a_changed_preload() {
    let value = |text: &str| json!([{"name": "LD_PRELOAD", "value": text}]);
    for (before, now, after) in [
        // Joined to what was there.
        (value("/a.so  /b.so"), "{}:/c.so", value("/a.so  /b.so:/c.so")),
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
fn undo_renames_a_referenced_preload_unless_the_user_extended_it() {
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
fn undo_reports_what_remains() {
    let mut pod = pod(&ascend(json!({}))).object;
    entry(&mut pod["spec"]["containers"][0], "TTP_PORT")["value"] = "1".into();
    let undo = undo::uninject(WorkloadKind::Pod, &pod.to_string()).expect("a record");
    assert_eq!(undo.remaining, ["container ascend: env TTP_PORT was changed since and stays"]);
    pod["spec"]["containers"][0]["name"] = "renamed".into();
    let undo = undo::uninject(WorkloadKind::Pod, &pod.to_string()).expect("a record");
    assert!(undo.remaining[0].starts_with("container ascend no longer exists"), "{:?}", undo.remaining);
}

#[test]
fn undo_keeps_a_pod_ip_changed_since_but_not_one_with_defaults() {
    let source = |path: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}});
    let undone =
        edited(json!([]), |container| entry(container, "POD_IP")["valueFrom"] = source("status.podIP"));
    assert_eq!(undone["env"], json!([]));
    let undone =
        edited(json!([]), |container| entry(container, "POD_IP")["valueFrom"] = source("status.hostIP"));
    assert_eq!(undone["env"], json!([{"name": "POD_IP", "valueFrom": source("status.hostIP")}]));
}

#[test]
fn undo_keeps_a_pod_ip_changed_together_with_the_record() {
    let pod = pod(&ascend(json!({}))).object.to_string().replace("status.podIP", "status.hostIP");
    let undo = undo::uninject(WorkloadKind::Pod, &pod).expect("a record");
    assert_eq!(undo.remaining, ["container ascend: env POD_IP was changed since and stays"]);
    let undone = undone(WorkloadKind::Pod, &serde_json::from_str(&pod).expect("JSON"));
    assert_eq!(
        undone["spec"]["containers"][0]["env"],
        json!([{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}])
    );
}
