//! What replaces changes of the image and of the start script: discovered libraries, the Manager as a sidecar, reset.json.

use super::*;
use crate::support::undone;
use swansong_inject::discovery::script;
use swansong_inject::manager::PROGRAM;
use swansong_inject::policy::{ImageRule, ManagerPolicy, NativeSidecars, ResetConfigMount, ZeroTouch};

const LINKS: &str = "/opt/swansong/libmspti.so:/opt/swansong/libtaskd.so";

fn discovering() -> Policy {
    Policy { discover_libraries: true, ..Policy::default() }
}

fn with_sidecar() -> Policy {
    Policy { manager: ManagerPolicy { sidecar: true, ..ManagerPolicy::default() }, ..Policy::default() }
}

fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = json!(value);
    object
}

/// An init container of the first template.
fn init_container(object: &Value, name: &str) -> Option<Value> {
    let list = object["spec"]["initContainers"].as_array()?;
    list.iter().find(|container| container["name"] == name).cloned()
}

#[test]
fn init_container_of_the_same_image_links_the_libraries() {
    let object = ascend(json!({
        "imagePullPolicy": "Never",
        "securityContext": {"runAsUser": 1000, "readOnlyRootFilesystem": true},
        "resources": {"limits": {"cpu": "8", "memory": "64Gi", "huawei.com/Ascend910": "8"},
                      "requests": {"cpu": "8", "huawei.com/Ascend910": "8"}},
        "env": [{"name": "A", "value": "b"}],
        "volumeMounts": [{"name": "cann", "mountPath": "/usr/local/Ascend"},
                         {"name": "logs", "mountPath": "/logs", "subPathExpr": "$(A)"}],
    }));
    let injected = run(WorkloadKind::Pod, &object, &discovering());
    assert_eq!(injected.warned(), []);
    let object_after = &injected.object;
    let links = json!({"name": "swansong-libraries", "mountPath": "/opt/swansong"});
    assert_eq!(
        init_container(object_after, "swansong-libraries").expect("added"),
        json!({
            "name": "swansong-libraries", "image": "train:1", "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script()],
            "securityContext": {"runAsUser": 1000, "readOnlyRootFilesystem": true},
            "resources": {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8"}},
            "volumeMounts": [{"name": "cann", "mountPath": "/usr/local/Ascend"}, links],
        })
    );
    assert_eq!(injected.env("LD_PRELOAD"), Some(&json!(LINKS)));
    assert_eq!(injected.env("PYTHONUSERBASE"), Some(&json!("/opt/swansong")));
    let mounts = &object_after["spec"]["containers"][0]["volumeMounts"];
    assert_eq!(
        names(mounts, "mountPath"),
        ["/usr/local/Ascend", "/logs", "/opt/swansong", "/opt/swansong-hook"]
    );
    let volumes = &object_after["spec"]["volumes"];
    assert_eq!(names(volumes, "name"), ["swansong-launcher-hook", "swansong-libraries"]);
    assert_eq!(undone(WorkloadKind::Pod, object_after), object);
}

#[test]
fn annotation_and_rule_decide_before_the_default() {
    let rule = |discover, libtaskd: Option<&str>| Policy {
        image_rules: vec![ImageRule {
            pattern: "train:*".to_owned(),
            libmspti: None,
            libtaskd: libtaskd.map(str::to_owned),
            discover,
        }],
        ..discovering()
    };
    let own = "/conda/taskd/libtaskd.so";
    let half = format!("/opt/swansong/libmspti.so:{own}");
    for (annotation, policy, expected) in [
        (None, Policy::default(), ours()),
        (None, discovering(), LINKS.to_owned()),
        (None, rule(Some(false), None), ours()),
        (None, rule(None, Some(own)), half.clone()),
        (Some(("swansong.dev/libraries", "configured")), discovering(), ours()),
        (Some(("swansong.dev/libraries", "discover")), Policy::default(), LINKS.to_owned()),
        (Some(("swansong.dev/libraries", "discover")), rule(Some(false), Some(own)), LINKS.to_owned()),
        (Some(("swansong.dev/libtaskd", own)), discovering(), half),
    ] {
        let mut object = ascend(json!({}));
        if let Some((key, value)) = annotation {
            object = annotated(object, key, value);
        }
        let injected = run(WorkloadKind::Pod, &object, &policy);
        assert_eq!(injected.env("LD_PRELOAD"), Some(&json!(expected)), "{annotation:?}");
        let has_finder = init_container(&injected.object, "swansong-libraries").is_some();
        assert_eq!(has_finder, expected.contains("/opt/swansong"), "{annotation:?}");
    }
    let misspelled = annotated(ascend(json!({})), "swansong.dev/libraries", "find");
    assert_eq!(pod(&misspelled).warned(), [Reason::OptionInvalid]);
}

#[test]
fn configured_paths_apply_where_discovery_is_not_possible() {
    let mounted = ascend(json!({"volumeMounts": [{"name": "opt", "mountPath": "/opt/"}]}));
    let mut taken = ascend(json!({}));
    taken["spec"]["volumes"] = json!([{"name": "swansong-libraries", "emptyDir": {}}]);
    for (object, reason) in [(mounted, Reason::LibrariesFolderMounted), (taken, Reason::LibrariesNameTaken)] {
        let injected = run(WorkloadKind::Pod, &object, &discovering());
        assert_eq!(injected.warned(), [reason]);
        assert_eq!(injected.env("LD_PRELOAD"), Some(&json!(ours())));
        assert_eq!(init_container(&injected.object, "swansong-libraries"), None);
    }
    let base = ascend(json!({"env": [{"name": "PYTHONUSERBASE", "value": "/mine"}]}));
    let injected = run(WorkloadKind::Pod, &base, &discovering());
    assert_eq!(injected.warned(), [Reason::PythonUserBaseTaken]);
    assert_eq!(injected.env("LD_PRELOAD"), Some(&json!(LINKS)));

    let npu = json!({"limits": {"huawei.com/Ascend910": "1"}});
    let two = pod_with(json!([
        {"name": "a", "image": "one", "resources": npu},
        {"name": "b", "image": "two", "resources": npu},
    ]));
    let injected = run(WorkloadKind::Pod, &two, &discovering());
    assert!(injected.warned().contains(&Reason::LibrariesOfSeveralImages), "{:?}", injected.warned());
    assert_eq!(env_of(&injected.object["spec"]["containers"][1], "LD_PRELOAD"), Some(&json!(ours())));
}

#[test]
fn links_are_made_before_a_sidecar_of_the_user_starts() {
    let mut object = ascend(json!({}));
    object["spec"]["initContainers"] = json!([
        {"name": "prepare", "image": "tools"}, {"name": "proxy", "image": "proxy", "restartPolicy": "Always"},
    ]);
    let policy = Policy { manager: with_sidecar().manager, ..discovering() };
    let injected = run(WorkloadKind::Pod, &object, &policy);
    assert_eq!(
        names(&injected.object["spec"]["initContainers"], "name"),
        ["prepare", "swansong-libraries", "proxy", "swansong-manager"]
    );
    assert_eq!(undone(WorkloadKind::Pod, &injected.object), object);
}

#[test]
fn manager_is_a_copy_of_the_training_container() {
    let mut object = ascend(json!({
        "command": ["train.sh"], "workingDir": "/job", "imagePullPolicy": "Always",
        "envFrom": [{"configMapRef": {"name": "c"}}],
        "securityContext": {"runAsUser": 1000},
        "env": [{"name": "WORLD_SIZE", "value": "16"}, {"name": "LD_PRELOAD", "value": "/mine.so"},
                {"name": "RANK", "value": "0"}],
        "ports": [{"containerPort": 22}],
        "resources": {"limits": {"huawei.com/Ascend910": "8"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "livenessProbe": {"exec": {"command": ["true"]}},
    }));
    object["spec"]["terminationGracePeriodSeconds"] = json!(30);
    let injected = run(WorkloadKind::Pod, &object, &with_sidecar());
    let after = &injected.object;
    let sidecar = init_container(after, "swansong-manager").expect("added");
    let command: Vec<&str> =
        sidecar["command"].as_array().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
    assert_eq!((command[0], command[1], command[4]), ("/bin/sh", "-c", PROGRAM));
    let training = &after["spec"]["containers"][0];
    assert_eq!(sidecar["env"], training["env"]);
    assert_eq!(env_of(&sidecar, "LD_PRELOAD"), Some(&json!(format!("{}:/mine.so", ours()))));
    for key in ["image", "imagePullPolicy", "workingDir", "securityContext", "envFrom"] {
        assert_eq!(sidecar[key], training[key], "{key}");
    }
    assert_eq!(sidecar["restartPolicy"], "Always");
    assert_eq!(sidecar["volumeMounts"], json!([{"name": "data", "mountPath": "/data"}]));
    assert_eq!(
        sidecar["resources"],
        json!({"limits": {"cpu": "1", "memory": "4Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}})
    );
    assert!(["ports", "livenessProbe"].iter().all(|key| sidecar.get(*key).is_none()));
    assert_eq!(after["spec"]["terminationGracePeriodSeconds"], 1860);
    assert_eq!(undone(WorkloadKind::Pod, after), object);
}

#[test]
fn manager_of_a_guaranteed_pod_requests_its_limits() {
    let resources = json!({"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8"}});
    let injected = run(WorkloadKind::Pod, &ascend(json!({"resources": resources})), &with_sidecar());
    let sidecar = init_container(&injected.object, "swansong-manager").expect("added");
    assert_eq!(sidecar["resources"]["requests"], sidecar["resources"]["limits"]);
}

#[test]
fn manager_of_a_pod_with_pod_level_resources_requests_none() {
    let mut object = ascend(json!({}));
    object["spec"]["resources"] = json!({"requests": {"cpu": "8"}, "limits": {"cpu": "8"}});
    let injected = run(WorkloadKind::Pod, &object, &with_sidecar());
    let sidecar = init_container(&injected.object, "swansong-manager").expect("added");
    assert_eq!(sidecar.get("resources"), None);
    assert_eq!(undone(WorkloadKind::Pod, &injected.object), object);
}

#[test]
fn torchruns_defaults_are_distinguished_from_other_variables() {
    let extra_env = [("PET_MAX_RESTARTS", "32767"), ("PET_MONITOR_INTERVAL", "5"), ("MINE", "1")];
    let extra_env = extra_env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let injected = run(WorkloadKind::Pod, &ascend(json!({})), &Policy { extra_env, ..Policy::default() });
    let reasons = ["env.PET_MAX_RESTARTS", "env.PET_MONITOR_INTERVAL", "env.MINE"]
        .map(|field| injected.action(field).map(|action| action.reason));
    assert_eq!(reasons, [Some(Reason::TorchrunDefault), Some(Reason::Required), Some(Reason::Required)]);
}

#[test]
fn only_the_pod_of_rank_zero_gets_a_manager_and_only_where_it_can_run() {
    use NativeSidecars::{Supported, Unknown, Unsupported};

    let rank = |rank: &str| ascend(json!({"env": [{"name": "RANK", "value": rank}]}));
    let mut volcano = ascend(json!({}));
    volcano["metadata"]["labels"] = json!({"volcano.sh/job-name": "j"});
    let mut named = ascend(json!({}));
    named["spec"]["initContainers"] = json!([{"name": "swansong-manager"}]);
    let long = {
        let mut object = rank("0");
        object["spec"]["terminationGracePeriodSeconds"] = json!(3600);
        object
    };
    let on = |native_sidecars| Policy {
        manager: ManagerPolicy { sidecar: true, native_sidecars, ..ManagerPolicy::default() },
        ..Policy::default()
    };
    for (object, policy, added, warned) in [
        (rank("0"), on(Supported), true, None),
        (long, on(Supported), true, None),
        (rank("1"), on(Supported), false, None),
        (rank("0"), Policy::default(), false, None),
        (annotated(rank("0"), "swansong.dev/manager", "sidecar"), Policy::default(), true, None),
        (annotated(rank("0"), "swansong.dev/manager", "none"), on(Supported), false, None),
        (rank("0"), on(Unsupported), false, Some(Reason::NativeSidecarsMissing)),
        (rank("0"), on(Unknown), false, Some(Reason::NativeSidecarsMissing)),
        (rank("1"), on(Unsupported), false, None),
        (volcano, on(Supported), false, Some(Reason::ManagerRankUnknown)),
        (named, on(Supported), false, Some(Reason::ManagerNameTaken)),
    ] {
        let injected = run(WorkloadKind::Pod, &object, &policy);
        let sidecar = init_container(&injected.object, "swansong-manager");
        assert_eq!(sidecar.is_some_and(|it| it.get("restartPolicy").is_some()), added, "{object}");
        let about_manager: Vec<Reason> = injected
            .warned()
            .into_iter()
            .filter(|reason| *reason != Reason::ControllerAddressUnknown)
            .collect();
        assert_eq!(about_manager, warned.into_iter().collect::<Vec<_>>(), "{object}");
        assert_eq!(undone(WorkloadKind::Pod, &injected.object), object);
    }
}

#[test]
fn jobs_leave_the_manager_to_their_pods_and_get_the_rest() {
    let template = json!({"spec": {"containers": [{"name": "ascend", "image": "train:1"}]}});
    let job = json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "llama", "namespace": "ai", "annotations": {
            "recover-strategy": "dump", "swansong.dev/manager": "sidecar", "swansong.dev/libraries": "discover",
            "swansong.dev/reset-config": "hostPath",
        }},
        "spec": {"replicaSpecs": {"Master": {"template": template}, "Worker": {"template": template}}},
    });
    let injected = run(WorkloadKind::AscendJob, &job, &Policy::default());
    let [master, worker] = &injected.outcome.templates[..] else { panic!("two templates") };
    let manager = |template: &swansong_inject::report::TemplateReport| {
        template.actions.iter().find(|action| action.field == "manager").map(|action| action.reason)
    };
    assert_eq!((manager(master), manager(worker)), (Some(Reason::ManagerAddedToPods), None));
    for replica in ["Master", "Worker"] {
        let spec = &injected.object["spec"]["replicaSpecs"][replica]["template"]["spec"];
        assert_eq!(names(&spec["initContainers"], "name"), ["swansong-libraries"]);
        assert_eq!(
            spec["volumes"][2],
            json!({"name": "swansong-reset-config", "hostPath": {
                "path": "/user/restore/reset/ai.reset-config-llama", "type": "DirectoryOrCreate"}})
        );
    }
    assert_eq!(undone(WorkloadKind::AscendJob, &injected.object), job);
}

#[test]
fn reset_config_is_mounted_by_the_name_of_the_job() {
    let policy = Policy { reset_config: Some(ResetConfigMount::ConfigMap), ..Policy::default() };
    let mut object = ascend(json!({}));
    let without_job = run(WorkloadKind::Pod, &object, &policy);
    assert_eq!(without_job.action("resetConfig").map(|action| action.reason), Some(Reason::JobNameUnknown));
    object["metadata"]["labels"] = json!({"training.kubeflow.org/job-name": "llama"});
    let injected = run(WorkloadKind::Pod, &object, &policy);
    let volumes = injected.object["spec"]["volumes"].as_array().unwrap();
    assert_eq!(
        volumes.last(),
        Some(
            &json!({"name": "swansong-reset-config", "configMap": {"name": "reset-config-llama", "optional": true}})
        )
    );
    assert_eq!(undone(WorkloadKind::Pod, &injected.object), object);
    object["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "mine", "mountPath": "/user/restore/reset/config"}]);
    let kept = run(WorkloadKind::Pod, &object, &policy);
    assert_eq!(kept.action("resetConfig").map(|action| action.reason), Some(Reason::UserValueKept));
    object["spec"]["containers"][0].as_object_mut().unwrap().remove("volumeMounts");
    object["spec"]["volumes"] = json!([{"name": "swansong-reset-config", "emptyDir": {}}]);
    let kept = run(WorkloadKind::Pod, &object, &policy);
    assert_eq!(kept.action("resetConfig").map(|action| action.reason), Some(Reason::UserValueKept));
    assert_eq!(undone(WorkloadKind::Pod, &kept.object), object);
}

#[test]
fn settings_of_a_namespace_apply_to_its_objects_only() {
    let policy = Policy {
        zero_touch: Some(ZeroTouch {
            namespaces: vec!["team-*".to_owned()],
            policy: Box::new(Policy { manager: with_sidecar().manager, ..discovering() }),
        }),
        ..Policy::default()
    };
    for (namespace, expected) in [(Some("team-a"), true), (Some("other"), false), (None, false)] {
        let mut object = ascend(json!({}));
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let injected = run(WorkloadKind::Pod, &object, &policy);
        assert_eq!(injected.object["spec"].get("initContainers").is_some(), expected, "{namespace:?}");
    }
}

#[test]
fn additions_that_the_user_changed_stay() {
    let policy = Policy { manager: with_sidecar().manager, ..discovering() };
    let mut injected = run(WorkloadKind::Pod, &ascend(json!({})), &policy).object;
    injected["spec"]["terminationGracePeriodSeconds"] = json!(60);
    injected["spec"]["containers"].as_array_mut().unwrap().push(
        json!({"name": "other", "volumeMounts": [{"name": "swansong-libraries", "mountPath": "/links"}]}),
    );
    let undo = swansong_inject::undo::uninject(WorkloadKind::Pod, &injected.to_string()).unwrap();
    assert_eq!(undo.remaining.len(), 2, "{:?}", undo.remaining);
    let after = crate::support::apply(&injected, &undo.operations);
    assert_eq!(names(&after["spec"]["volumes"], "name"), ["swansong-libraries"]);
    assert_eq!(after["spec"]["terminationGracePeriodSeconds"], 60);
    assert!(after["spec"].get("initContainers").is_none());
}
