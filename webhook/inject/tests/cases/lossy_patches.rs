//! Patches keep unknown fields.

use super::*;

/// Reported as berglas#264, eks-pod-identity-webhook#208, kops#16802, kube-secrets-init#53, kube-image-keeper#457,
/// datadog-agent#37837.
#[test]
fn native_sidecars_are_kept_unless_named() {
    let mut object = ascend(json!({}));
    object["spec"]["initContainers"] =
        json!([{"name": "a", "restartPolicy": "Always"}, {"name": "b", "restartPolicy": "Always"}]);
    let injected = pod(&object);
    assert_eq!(injected.object["spec"]["initContainers"], object["spec"]["initContainers"]);
    assert!(injected.paths().iter().all(|path| !path.starts_with("/spec/initContainers")));

    object["metadata"]["annotations"]["swansong.dev/containers"] = json!("ascend,b");
    let injected = pod(&object);
    let sidecars = &injected.object["spec"]["initContainers"];
    assert_eq!(sidecars[0], object["spec"]["initContainers"][0]);
    assert_eq!(sidecars[1]["restartPolicy"], "Always");
    assert_eq!(env_of(&sidecars[1], "LD_PRELOAD").unwrap(), &json!(ours()));
}

#[test]
fn ordinary_init_containers_are_left_unchanged_even_when_named() {
    let mut object = ascend(json!({}));
    object["spec"]["initContainers"] = json!([{"name": "fetch"}]);
    object["metadata"]["annotations"]["swansong.dev/containers"] = json!("ascend,fetch");
    let injected = pod(&object);
    assert_eq!(injected.warned(), [Reason::InitContainer]);
    assert_eq!(injected.object["spec"]["initContainers"], object["spec"]["initContainers"]);
}

/// Reported as windows-testing#576.
#[test]
fn unknown_fields_are_kept() {
    let object = ascend(json!({
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
        "futureX": {"n": 1e3},
    }));
    let container = &pod(&object).object["spec"]["containers"][0];
    assert_eq!(container["restartPolicyRules"], object["spec"]["containers"][0]["restartPolicyRules"]);
    assert_eq!(container["futureX"].to_string(), r#"{"n":1000.0}"#);
}

/// Reported as kubernetes/website#47465.
#[test]
fn a_plain_pod_needs_one_operation_per_list() {
    let injected = pod(&ascend(json!({})));
    assert_eq!(
        injected.paths(),
        [
            "/spec/containers/0/env",
            "/spec/containers/0/ports",
            "/spec/containers/0/volumeMounts",
            "/spec/volumes",
            "/metadata/annotations/swansong.dev~1injected",
            "/metadata/annotations/swansong.dev~1launcher-hook.pth",
            "/metadata/annotations/swansong.dev~1launcher-hook.py"
        ]
    );
}

/// Reported as linkerd2#1756, PR#4180, consul-k8s#20.
#[test]
fn labels_and_annotations_of_the_user_are_kept() {
    let mut object = ascend(json!({}));
    object["metadata"]["labels"] = json!({"app": "x"});
    object["metadata"]["annotations"]["mine"] = json!("kept");
    let injected = pod(&object);
    assert!(injected.paths().iter().all(|path| !path.contains("labels")));
    assert_eq!(injected.object["metadata"]["annotations"]["mine"], "kept");
    // A pod known by the operator's marker has no annotations at all.
    let mut marked = ascend(json!({"env": [{"name": "HIGH_AVAILABILITY", "value": "dump"}]}));
    marked["metadata"].as_object_mut().unwrap().remove("annotations");
    assert!(pod(&marked).object["metadata"]["annotations"]["swansong.dev/injected"].is_string());
}

/// Reported as kyverno#4066, #2129.
#[test]
fn extends_absent_null_empty_and_filled_lists() {
    for fields in [
        json!({}),
        json!({"env": [], "ports": []}),
        json!({"env": null, "ports": null}),
        json!({"env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 1}]}),
    ] {
        let injected = pod(&ascend(fields.clone()));
        assert_eq!(injected.env("TTP_PORT").unwrap(), "8000", "{fields}");
        assert_eq!(injected.env("LD_PRELOAD").unwrap(), &json!(ours()), "{fields}");
        let ports = &injected.object["spec"]["containers"][0]["ports"];
        assert!(ports.as_array().unwrap().iter().any(|port| port["containerPort"] == 9601), "{fields}");
    }
}

/// Reported as opa#3550.
#[test]
fn additions_keep_the_configured_order() {
    let expected = [
        "POD_IP",
        "TTP_PORT",
        "TASKD_PROCESS_ENABLE",
        "TTP_ADDR",
        "TTP_NORMAL_ACTION_TIME_LIMIT",
        "Z",
        "B",
        "LD_PRELOAD",
    ];
    let policy = Policy {
        extra_env: [("Z", "1"), ("B", "2")].map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        ..Policy::default()
    };
    for env in [json!([]), json!(null), json!([{"name": "A", "value": "1"}])] {
        let object = run(WorkloadKind::Pod, &ascend(json!({"env": env})), &policy).object;
        let mut added = names(&object["spec"]["containers"][0]["env"], "name");
        added.retain(|name| name != "A");
        assert_eq!(added, expected);
    }
}

/// Reported as linkerd2#6860, kubevirt#9578, gatekeeper#144.
#[test]
fn an_object_without_kind_has_the_kind_of_the_request() {
    let mut object = ascend(json!({}));
    object.as_object_mut().unwrap().remove("kind");
    let injected = pod(&object);
    assert_eq!(injected.warned(), [Reason::KindMissing]);
    assert!(injected.outcome.injected());
}
