//! Environment variables, LD_PRELOAD among them.

use super::*;

fn preload(value: &str) -> Value {
    ascend(json!({"env": [{"name": "LD_PRELOAD", "value": value}]}))
}

/// Reported as dynatrace-operator#1201.
#[test]
fn a_second_injection_changes_no_preload() {
    for object in [preload(""), preload("/x/libtaskd.so.1"), preload(&format!("{TASKD}.1"))] {
        let first = pod(&object);
        let second = pod(&first.object);
        assert!(second.outcome.operations.is_empty());
        assert_eq!(first.object, second.object);
    }
    assert_eq!(
        pod(&preload(&format!("{TASKD}.1"))).env("LD_PRELOAD").unwrap(),
        &json!(format!("{}:{TASKD}.1", ours()))
    );
}

/// Reported as datadog-agent PR#30716, alnair#45, beyla#3128.
#[test]
fn preloads_of_the_user_are_kept() {
    let own = "/usr/local/lib/libjemalloc.so.2";
    assert_eq!(pod(&preload(own)).env("LD_PRELOAD").unwrap(), &json!(format!("{}:{own}", ours())));
    let agents = "launcher.preload.so:/var/odigos/loader/loader.so";
    assert_eq!(pod(&preload(agents)).env("LD_PRELOAD").unwrap(), &json!(format!("{}:{agents}", ours())));
}

/// Reported as charts#103, gh-aw-firewall#2535, dash0-operator#490.
#[test]
fn skip_preload_excludes_named_containers() {
    for names in ["ascend", "*", "other,ascend"] {
        let mut object = ascend(json!({}));
        object["metadata"]["annotations"]["swansong.dev/skip-preload"] = json!(names);
        let injected = pod(&object);
        assert_eq!(injected.env("LD_PRELOAD"), None);
        assert_eq!(injected.env("TTP_PORT").unwrap(), "8000");
        assert_eq!(injected.action("env.LD_PRELOAD").unwrap().reason, Reason::PreloadOptedOut);
    }
}

/// Reported as opentelemetry-operator#1814, #3166, #3392.
#[test]
fn a_preload_with_a_value_from_is_kept() {
    let source = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    let object = ascend(
        json!({"env": [{"name": "LD_PRELOAD", "valueFrom": source}, {"name": "B", "value": "$(LD_PRELOAD)"}]}),
    );
    let referenced = pod(&object);
    let env = &referenced.object["spec"]["containers"][0]["env"];
    assert_eq!(env[0], json!({"name": "SWANSONG_ORIGINAL_LD_PRELOAD", "valueFrom": source}));
    // Between the entry that it refers to and the one that refers to it.
    assert_eq!(
        env[1],
        json!({"name": "LD_PRELOAD", "value": format!("{}:$(SWANSONG_ORIGINAL_LD_PRELOAD)", ours())})
    );
    assert_eq!(env[2]["name"], "B");

    let policy = Policy { preload_value_from: PreloadValueFrom::Skip, ..Policy::default() };
    let skipped = run(WorkloadKind::Pod, &object, &policy);
    assert_eq!(skipped.object["spec"]["containers"][0]["env"][0], object["spec"]["containers"][0]["env"][0]);
    assert_eq!(skipped.warned(), [Reason::PreloadValueFromSkipped]);
}

/// Reported as opentelemetry-operator PR#864, #793.
#[test]
fn references_between_variables_still_resolve() {
    let object = ascend(json!({"env": [
        {"name": "LIBDIR", "value": "/opt"}, {"name": "LD_PRELOAD", "value": "$(LIBDIR)/a.so"},
        {"name": "URL", "value": "tcp://$(POD_IP):$(TTP_PORT)"},
    ]}));
    let env = &pod(&object).object["spec"]["containers"][0]["env"];
    assert_eq!(
        names(env, "name"),
        [
            "LIBDIR",
            "LD_PRELOAD",
            "POD_IP",
            "TTP_PORT",
            "URL",
            "TASKD_PROCESS_ENABLE",
            "TTP_ADDR",
            "TTP_NORMAL_ACTION_TIME_LIMIT"
        ]
    );
    assert_eq!(env[1]["value"], json!(format!("{}:$(LIBDIR)/a.so", ours())));
}

/// Reported as azure-workload-identity#1555, PR#1593.
#[test]
fn env_from_without_a_preload_is_warned_about() {
    let injected = pod(&ascend(json!({"envFrom": [{"configMapRef": {"name": "c"}}]})));
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(ours()));
    assert_eq!(injected.warned(), [Reason::PreloadMayHideEnvFrom, Reason::VariablesMayHideEnvFrom]);
}

/// Reported as kserve#4332, odigos PR#1619, DataDog PR#28604, k3d#204.
#[test]
fn variables_of_the_user_are_kept() {
    let injected = pod(&ascend(json!({"env": [{"name": "TTP_PORT", "value": "8000"}]})));
    let env = &injected.object["spec"]["containers"][0]["env"];
    assert_eq!(names(env, "name").iter().filter(|name| **name == "TTP_PORT").count(), 1);
    assert!(injected.warned().is_empty());

    let injected = pod(&ascend(json!({"env": [{"name": "TTP_PORT", "value": "9000"}]})));
    assert_eq!(injected.env("TTP_PORT").unwrap(), "9000");
    assert_eq!(
        injected.object["spec"]["containers"][0]["ports"][0],
        json!({"containerPort": 9000, "name": "ttp-port", "protocol": "TCP"})
    );
    assert_eq!(injected.warned(), [Reason::TtpPortNotDefault]);
}

#[test]
fn an_unreadable_ttp_port_is_warned_about() {
    for entry in [
        json!({"value": "$(X)"}),
        json!({"value": "http"}),
        json!({"value": "0"}),
        json!({"value": "65536"}),
        json!({"valueFrom": {"fieldRef": {}}}),
    ] {
        let mut entry = entry;
        entry["name"] = json!("TTP_PORT");
        let injected = pod(&ascend(json!({"env": [entry]})));
        assert_eq!(injected.warned(), [Reason::TtpPortUnknown]);
        assert_eq!(injected.object["spec"]["containers"][0]["ports"][0]["containerPort"], 8000);
    }
}

#[test]
fn the_last_of_several_preloads_is_joined() {
    let object = ascend(
        json!({"env": [{"name": "LD_PRELOAD", "value": "/a.so"}, {"name": "LD_PRELOAD", "value": "/b.so"}]}),
    );
    let env = &pod(&object).object["spec"]["containers"][0]["env"];
    assert_eq!(env[0]["value"], "/a.so");
    assert_eq!(env[1]["value"], json!(format!("{}:/b.so", ours())));
}

#[test]
fn values_that_prevent_a_dump_are_warned_about() {
    for (entry, reason) in [
        (json!({"name": "TASKD_PROCESS_ENABLE", "value": "off"}), Reason::TaskdDisabled),
        (json!({"name": "POD_IP"}), Reason::PodIpEmpty),
        (json!({"name": "POD_IP", "value": ""}), Reason::PodIpEmpty),
        // The documentation's mis-indented example.
        (
            json!({"name": "POD_IP", "valueFrom": null, "fieldRef": {"fieldPath": "status.podIP"}}),
            Reason::PodIpEmpty,
        ),
    ] {
        assert_eq!(pod(&ascend(json!({"env": [entry]}))).warned(), [reason], "{entry}");
    }
}

#[test]
fn the_preload_order_is_configurable() {
    let policy = Policy { preload_order: PreloadOrder::Last, ..Policy::default() };
    let injected = run(WorkloadKind::Pod, &preload("/a.so"), &policy);
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("/a.so:{MSPTI}:{TASKD}")));
    assert_eq!(pod(&preload("/a.so")).env("LD_PRELOAD").unwrap(), &json!(format!("{MSPTI}:{TASKD}:/a.so")));
}

/// Reported as DataDog#50313, #35170.
#[test]
fn resources_do_not_affect_a_chosen_container() {
    for resources in [
        json!(null),
        json!({}),
        json!({"limits": {"cpu": "0.1"}}),
        json!({"requests": {"memory": "1.5Gi", "cpu": "1m"}, "limits": null}),
    ] {
        let injected = pod(&ascend(json!({"resources": resources})));
        assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(ours()));
    }
}

#[test]
fn windows_pods_are_left_unchanged() {
    for (key, value) in
        [("os", json!({"name": "windows"})), ("nodeSelector", json!({"kubernetes.io/os": "windows"}))]
    {
        let mut object = ascend(json!({}));
        object["spec"][key] = value;
        let injected = pod(&object);
        assert_eq!(injected.outcome.skip, Some(Reason::Windows));
        assert_eq!(injected.object, object);
        assert_eq!(injected.warned(), [Reason::Windows]);
    }
}

#[test]
fn library_paths_come_from_annotation_then_image_then_default() {
    let mut object = ascend(json!({}));
    object["metadata"]["annotations"]["swansong.dev/libtaskd"] = json!("/a/taskd/libtaskd.so");
    object["metadata"]["annotations"]["swansong.dev/libmspti"] = json!("relative.so");
    let policy = Policy {
        image_rules: vec![swansong_inject::policy::ImageRule {
            pattern: "train:*".to_owned(),
            libmspti: Some("/i/libmspti.so".to_owned()),
            libtaskd: Some("/i/libtaskd.so".to_owned()),
            discover: None,
        }],
        ..Policy::default()
    };
    let injected = run(WorkloadKind::Pod, &object, &policy);
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), "/i/libmspti.so:/a/taskd/libtaskd.so");
    assert_eq!(injected.warned(), [Reason::OptionInvalid]);
}

#[test]
fn libraries_that_must_be_first_stay_first() {
    for library in [
        "/gcc/libasan.so",
        "/gcc/libtsan.so.2",
        "/gcc/liblsan.so.0",
        "/gcc/libhwasan.so.0",
        "/llvm/lib/linux/libclang_rt.asan-aarch64.so",
        "/llvm/lib/aarch64-unknown-linux-gnu/libclang_rt.tsan.so",
        "/lib/libgomp.so.1",
        "/torch.libs/libgomp-6e1a1d1b.so.1.0.0",
    ] {
        let object = preload(library);
        let injected = pod(&object);
        assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("{library}:{}", ours())));
        assert_eq!(injected.action("env.LD_PRELOAD").unwrap().reason, Reason::PreloadKeptFirst);
        assert_eq!(crate::support::undone(WorkloadKind::Pod, &injected.object), object);
    }
    let policy = Policy { preload_keep_first: vec!["libjemalloc*".to_owned()], ..Policy::default() };
    let injected = run(WorkloadKind::Pod, &preload("/lib/libjemalloc.so.2"), &policy);
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("/lib/libjemalloc.so.2:{}", ours())));
}

#[test]
fn an_annotation_sets_the_order_of_one_pod() {
    for (order, user, expected) in [
        ("last", "/a.so", format!("/a.so:{}", ours())),
        ("first", "/gcc/libasan.so", format!("{}:/gcc/libasan.so", ours())),
    ] {
        let mut object = preload(user);
        object["metadata"]["annotations"]["swansong.dev/preload-order"] = json!(order);
        assert_eq!(pod(&object).env("LD_PRELOAD").unwrap(), &json!(expected));
    }
    let mut object = preload("/a.so");
    object["metadata"]["annotations"]["swansong.dev/preload-order"] = json!("middle");
    assert_eq!(pod(&object).warned(), [Reason::OptionInvalid]);
}

#[test]
fn a_library_of_the_user_at_another_path_counts_as_ours() {
    let injected = pod(&preload("/opt/venv/libs/libtaskd.so:/opt/cann/lib64/libmspti.so"));
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), "/opt/venv/libs/libtaskd.so:/opt/cann/lib64/libmspti.so");
    assert_eq!(injected.noted(), [Reason::PreloadFromOtherPath, Reason::PreloadFromOtherPath]);
    assert!(injected.warned().is_empty());
    let injected = pod(&preload("/opt/venv/libs/libtaskd.so"));
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("{MSPTI}:/opt/venv/libs/libtaskd.so")));
}

#[test]
fn variables_in_a_preload_are_resolved_before_the_decision() {
    let referring = |path: &str| {
        ascend(json!({"env": [
            {"name": "TOOLS", "value": path}, {"name": "LD_PRELOAD", "value": "$(TOOLS):/b.so"},
        ]}))
    };
    let object = referring("/gcc/libasan.so.8");
    let injected = pod(&object);
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("$(TOOLS):/b.so:{}", ours())));
    assert_eq!(crate::support::undone(WorkloadKind::Pod, &injected.object), object);

    let injected = pod(&referring("/opt/conda/libs/libtaskd.so"));
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("{MSPTI}:$(TOOLS):/b.so")));
    assert_eq!(injected.noted(), [Reason::PreloadFromOtherPath]);
    assert!(pod(&injected.object).outcome.operations.is_empty());

    let injected = pod(&referring("$(TOOLS)"));
    assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(format!("{}:$(TOOLS):/b.so", ours())));
}

#[test]
fn an_optional_preload_is_left_unchanged_with_a_warning() {
    for key in ["configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let source = json!({key: {"name": "c", "key": "k", "optional": true}});
        let object = ascend(json!({"env": [{"name": "LD_PRELOAD", "valueFrom": source}]}));
        let injected = pod(&object);
        assert_eq!(injected.warned(), [Reason::PreloadValueFromOptional]);
        assert_eq!(injected.env("LD_PRELOAD").unwrap(), &source);
        assert_eq!(injected.env("SWANSONG_ORIGINAL_LD_PRELOAD"), None);
        assert_eq!(crate::support::undone(WorkloadKind::Pod, &injected.object), object);
    }
}

#[test]
fn a_configured_ttp_port_is_warned_about_for_the_port_of_mindspeed() {
    let policy = Policy {
        ttp_port: swansong_inject::policy::NamedPort { name: "ttp-port".to_owned(), port: 8100 },
        ..Policy::default()
    };
    let ttp_port = |value: &str| ascend(json!({"env": [{"name": "TTP_PORT", "value": value}]}));
    assert!(run(WorkloadKind::Pod, &ttp_port("8000"), &policy).warned().is_empty());
    let injected = run(WorkloadKind::Pod, &ttp_port("8100"), &policy);
    assert_eq!(injected.warned(), [Reason::TtpPortNotDefault]);
    assert!(injected.outcome.warnings[0].message.contains("connects to 8000"));
}
