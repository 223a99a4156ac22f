//! The launcher hook in Pods and templates.

use super::*;
use crate::support::undone;
use swansong_inject::launcher_hook::MODULE;

const SITE: &str = "/usr/local/lib/python3.10/dist-packages";

fn annotated(key: &str, value: &str) -> Value {
    let mut object = ascend(json!({}));
    object["metadata"]["annotations"][key] = json!(value);
    object
}

fn paths_of_mounts(object: &Value) -> Vec<String> {
    let mounts = object["spec"]["containers"][0]["volumeMounts"].as_array().cloned().unwrap_or_default();
    mounts.iter().map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pod_carries_the_hook() {
    let object = ascend(json!({}));
    let injected = pod(&object).object;
    let annotations = &injected["metadata"]["annotations"];
    assert_eq!(annotations["swansong.dev/launcher-hook.py"], MODULE);
    let line = annotations["swansong.dev/launcher-hook.pth"].as_str().expect("a line");
    assert!(
        line.starts_with("import ") && line.contains("install(limit_seconds=1860, patch_launcher=False)"),
        "{line}"
    );
    assert_eq!(line.find('\n'), Some(line.len() - 1), "Python reads each line by itself: {line}");
    let item = |path: &str, key: &str| json!({"path": path, "fieldRef": {"fieldPath": format!("metadata.annotations['swansong.dev/{key}']")}});
    assert_eq!(
        injected["spec"]["volumes"],
        json!([{"name": "swansong-launcher-hook", "downwardAPI": {"items": [
            item("swansong_launcher_hook.py", "launcher-hook.py"),
            item("swansong-launcher-hook.pth", "launcher-hook.pth"),
        ]}}])
    );
    let mount = |file: &str| json!({"name": "swansong-launcher-hook", "mountPath": format!("{SITE}/{file}"), "subPath": file, "readOnly": true});
    assert_eq!(
        injected["spec"]["containers"][0]["volumeMounts"],
        json!([mount("swansong_launcher_hook.py"), mount("swansong-launcher-hook.pth")])
    );
    assert_eq!(undone(WorkloadKind::Pod, &injected), object);
    let length =
        annotations.as_object().unwrap().iter().map(|(key, value)| key.len() + value.to_string().len());
    assert!(length.sum::<usize>() < 16 << 10);
}

#[test]
fn hook_is_added_where_dump_acts_alone_or_the_job_asks_for_it() {
    let off =
        Policy { dump: DumpPolicy { launcher_hook: false, ..DumpPolicy::default() }, ..Policy::default() };
    for (strategy, protect, policy, added, warned) in [
        ("dump", None, &Policy::default(), true, vec![]),
        ("dump,exit", None, &Policy::default(), true, vec![]),
        ("dump", Some("false"), &Policy::default(), false, vec![]),
        ("dump", Some("perhaps"), &Policy::default(), true, vec![Reason::OptionInvalid]),
        ("dump", Some("yes"), &off, true, vec![]),
        ("dump", Some("No"), &Policy::default(), false, vec![]),
        ("dump", None, &off, false, vec![Reason::DumpUnprotected]),
        ("dump", Some("true"), &off, true, vec![]),
        ("recover,dump", None, &Policy::default(), false, vec![Reason::DumpUnprotected]),
        ("recover,dump", Some("false"), &Policy::default(), false, vec![]),
        ("recover,dump", Some("true"), &Policy::default(), true, vec![Reason::LauncherHookDelaysOthers]),
    ] {
        let mut object = annotated("recover-strategy", strategy);
        if let Some(protect) = protect {
            object["metadata"]["annotations"]["swansong.dev/protect-dump"] = json!(protect);
        }
        let injected = run(WorkloadKind::Pod, &object, policy);
        assert_eq!(!paths_of_mounts(&injected.object).is_empty(), added, "{strategy} {protect:?}");
        assert_eq!(injected.object["spec"].get("volumes").is_some(), added, "{strategy} {protect:?}");
        assert_eq!(injected.warned(), warned, "{strategy} {protect:?}");
    }
}

#[test]
fn only_rank_zero_is_warned_about_a_missing_hook() {
    let mut object = ascend(json!({"env": [{"name": "MASTER_ADDR", "value": "10.0.0.1"}]}));
    object["metadata"]["annotations"]["recover-strategy"] = json!("recover,dump");
    object["metadata"]["labels"] = json!({"replica-type": "worker"});
    assert_eq!(pod(&object).warned(), []);
    object["metadata"]["annotations"]["swansong.dev/fast-dump"] = json!("true");
    assert_eq!(pod(&object).warned(), [Reason::FastDumpUnprotected]);
}

#[test]
fn directory_is_the_one_of_the_library() {
    let of_user = "/conda/lib/python3.11/site-packages";
    let preload = format!("{of_user}/taskd/python/cython_api/libs/libtaskd.so");
    let mut object = preload_pod(&preload);
    assert_eq!(
        paths_of_mounts(&pod(&object).object),
        [format!("{of_user}/swansong_launcher_hook.py"), format!("{of_user}/swansong-launcher-hook.pth")]
    );
    // A path that shows no directory leaves the configured one.
    object = preload_pod("/usr/lib/libtaskd.so");
    assert!(paths_of_mounts(&pod(&object).object)[0].starts_with(SITE));
    object = annotated("swansong.dev/libtaskd", "/opt/libtaskd.so");
    let injected = pod(&object);
    assert_eq!(injected.warned(), [Reason::SiteDirectoryUnknown]);
    assert_eq!(paths_of_mounts(&injected.object), Vec::<String>::new());
}

fn preload_pod(value: &str) -> Value {
    ascend(json!({"env": [{"name": "LD_PRELOAD", "value": value}]}))
}

#[test]
fn volumes_and_mounts_of_the_user_are_kept() {
    let mount = |name: &str, path: &str| json!([{"name": name, "mountPath": path}]);
    let volume = |name: &str| json!([{"name": name, "emptyDir": {}}]);
    for (mounts, volumes, reason) in [
        (json!([]), volume("swansong-launcher-hook"), Reason::LauncherHookVolumeTaken),
        (mount("swansong-launcher-hook", "/data"), json!([]), Reason::LauncherHookVolumeTaken),
        (mount("data", SITE), volume("data"), Reason::SiteDirectoryMounted),
        (mount("data", "/usr/local/"), volume("data"), Reason::SiteDirectoryMounted),
        (
            mount("data", &format!("{SITE}/swansong-launcher-hook.pth")),
            volume("data"),
            Reason::SiteDirectoryMounted,
        ),
    ] {
        let mut object = ascend(json!({"volumeMounts": mounts}));
        object["spec"]["volumes"] = volumes;
        let injected = pod(&object);
        assert_eq!(injected.warned(), [reason], "{object}");
        assert_eq!(injected.object["spec"]["volumes"], object["spec"]["volumes"]);
        assert_eq!(injected.object["spec"]["containers"][0]["volumeMounts"], mounts);
        assert_eq!(injected.object["metadata"]["annotations"].get("swansong.dev/launcher-hook.py"), None);
        assert_eq!(undone(WorkloadKind::Pod, &injected.object), object);
    }
}

#[test]
fn containers_without_preload_get_the_hook_too() {
    let mut object = pod_with(json!([{"name": "a"}, {"name": "b"}]));
    object["metadata"]["annotations"]["swansong.dev/containers"] = json!("a,b");
    object["metadata"]["annotations"]["swansong.dev/skip-preload"] = json!("a");
    let injected = pod(&object).object;
    for container in injected["spec"]["containers"].as_array().unwrap() {
        assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 2, "{container}");
    }
    let has_preload =
        |index: usize| crate::support::env_of(&injected["spec"]["containers"][index], "LD_PRELOAD").is_some();
    assert_eq!([has_preload(0), has_preload(1)], [false, true]);
}

/// The wait has to be longer than the save.
#[test]
fn limit_of_the_wait_is_above_the_limit_of_the_save() {
    for (value, limit) in [("300", 360), ("$(LIMIT)", 1860), ("70000", 1860)] {
        let object = ascend(json!({"env": [{"name": "TTP_NORMAL_ACTION_TIME_LIMIT", "value": value}]}));
        let pth =
            pod(&object).object["metadata"]["annotations"]["swansong.dev/launcher-hook.pth"].to_string();
        assert!(pth.contains(&format!("limit_seconds={limit}, patch_launcher=False")), "{pth}");
    }
    let dump = DumpPolicy { launcher_patch: true, save_limit: None, ..DumpPolicy::default() };
    let injected = run(WorkloadKind::Pod, &ascend(json!({})), &Policy { dump, ..Policy::default() });
    let pth = injected.object["metadata"]["annotations"]["swansong.dev/launcher-hook.pth"].to_string();
    assert!(pth.contains("limit_seconds=240, patch_launcher=True"), "{pth}");
}

/// The hook of the template stays when the Pod is reviewed by a later version or under another configuration.
#[test]
fn hook_of_the_template_is_kept_on_the_pod() {
    let mut object = pod(&ascend(json!({}))).object;
    object["metadata"]["annotations"]["swansong.dev/launcher-hook.py"] = json!("# of an older version\n");
    let dump = DumpPolicy { launcher_hook: false, save_limit: Some(60), ..DumpPolicy::default() };
    let again = run(WorkloadKind::Pod, &object, &Policy { dump, ..Policy::default() });
    assert!(again.outcome.operations.is_empty(), "{:?}", again.paths());
    assert_eq!(again.action("launcherHook").unwrap().reason, Reason::AlreadyPresent);
}

/// A job of so many templates would become too large.
#[test]
fn pods_of_a_job_with_many_templates_get_the_hook_one_by_one() {
    let task = json!({"template": {"spec": {"containers": [{"name": "ascend"}]}}});
    let job = |count| {
        json!({
            "kind": "Job", "metadata": {"annotations": {"recover-strategy": "dump"}},
            "spec": {"tasks": vec![task.clone(); count]},
        })
    };
    for (count, in_job) in [(32, true), (33, false)] {
        let injected = run(WorkloadKind::VolcanoJob, &job(count), &Policy::default());
        assert_eq!(injected.object.to_string().contains("swansong-launcher-hook"), in_job, "{count}");
        assert!(!injected.warned().contains(&Reason::DumpUnprotected));
        let mut pod_object = injected.object["spec"]["tasks"][0]["template"].clone();
        pod_object["kind"] = json!("Pod");
        assert!(!paths_of_mounts(&pod(&pod_object).object).is_empty());
    }
}

#[test]
fn undo_keeps_a_volume_that_the_user_mounted_too() {
    let mut object = pod(&ascend(json!({}))).object;
    let mounts = object["spec"]["containers"][0]["volumeMounts"].as_array_mut().unwrap();
    let own = json!({"name": "swansong-launcher-hook", "mountPath": "/mine"});
    mounts.push(own.clone());
    let undo = swansong_inject::undo::uninject(WorkloadKind::Pod, &object.to_string()).unwrap();
    assert!(undo.remaining[0].contains("volume swansong-launcher-hook"), "{:?}", undo.remaining);
    let undone = crate::support::apply(&object, &undo.operations);
    assert_eq!(undone["spec"]["containers"][0]["volumeMounts"], json!([own]));
    assert_eq!(undone["spec"]["volumes"].as_array().unwrap().len(), 1);
}

#[test]
fn annotations_without_room_for_the_hook_are_warned_about() {
    for (length, warned) in [(200 << 10, vec![]), (250 << 10, vec![Reason::DumpUnprotected])] {
        let injected = pod(&annotated("example.com/long", &"x".repeat(length)));
        assert_eq!(injected.warned(), warned, "{length}");
        assert_eq!(paths_of_mounts(&injected.object).is_empty(), !warned.is_empty(), "{length}");
    }
}

#[test]
fn hook_of_the_user_is_kept_with_a_warning() {
    for key in ["swansong.dev/launcher-hook.py", "swansong.dev/launcher-hook.pth"] {
        let injected = pod(&annotated(key, "import mine\n"));
        assert_eq!(injected.object["metadata"]["annotations"][key], "import mine\n");
        assert_eq!(injected.warned(), [Reason::LauncherHookDiffers], "{key}");
        assert_eq!(injected.outcome.templates[0].actions[0].reason, Reason::LauncherHookDiffers, "{key}");
        assert_eq!(pod(&injected.object).warned(), [Reason::LauncherHookDiffers], "{key}");
    }
    let mut injected = pod(&ascend(json!({}))).object;
    assert_eq!(pod(&injected).warned(), []);
    // The record shows that the hook of another configuration is Swansong's.
    let dump = DumpPolicy { save_limit: Some(60), ..DumpPolicy::default() };
    let other = run(WorkloadKind::Pod, &injected, &Policy { dump, ..Policy::default() });
    assert!(!other.warned().contains(&Reason::LauncherHookDiffers));
    injected["metadata"]["annotations"]["swansong.dev/launcher-hook.py"] = json!("# mine\n");
    assert_eq!(pod(&injected).warned(), [Reason::LauncherHookDiffers]);
}
