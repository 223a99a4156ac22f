//! The annotation recover-strategy of jobs, templates and Pods.

use super::*;

fn job(annotation: &str) -> Value {
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "j", "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": annotation}},
        "spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "ascend"}]}}}}},
    })
}

#[test]
fn the_strategy_of_an_ascend_job_is_normalised() {
    let injected = run(WorkloadKind::AscendJob, &job("recover, dump"), &Policy::default());
    assert_eq!(injected.object["metadata"]["annotations"]["recover-strategy"], "recover,dump");
    let template = &injected.object["spec"]["replicaSpecs"]["Master"]["template"];
    assert_eq!(template["metadata"]["annotations"]["recover-strategy"], "recover,dump");
    assert_eq!(injected.noted(), [Reason::StrategyNormalised, Reason::OnePod]);
    assert_eq!(injected.outcome.strategies, ["recover", "dump"]);
}

#[test]
fn unknown_tokens_are_warned_about_without_an_injection() {
    let injected = run(WorkloadKind::AscendJob, &job("recover，dump"), &Policy::default());
    assert_eq!(injected.outcome.skip, Some(Reason::StrategyWithoutDump));
    assert!(injected.outcome.operations.is_empty());
    assert!(injected.outcome.warnings[0].message.contains("plain comma"));
}

#[test]
fn pods_of_an_injected_job_need_only_the_address_of_the_controller() {
    let injected = run(WorkloadKind::AscendJob, &job("dump"), &Policy::default()).object;
    let template = &injected["spec"]["replicaSpecs"]["Master"]["template"];
    let mut pod_object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    // ascend-operator appends its own.
    let env = pod_object["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    env.extend([
        json!({"name": "HIGH_AVAILABILITY", "value": "dump"}),
        json!({"name": "RANK", "value": "0"}),
    ]);
    let injected = pod(&pod_object);
    assert_eq!(
        injected.paths(),
        ["/spec/containers/0/env/-", "/metadata/annotations/swansong.dev~1injected"]
    );
    assert_eq!(injected.env("TTP_ADDR").unwrap(), "$(POD_IP)");
    assert!(pod(&injected.object).outcome.operations.is_empty());
}

#[test]
fn an_opt_out_on_the_job_reaches_its_pods() {
    let mut object = job("dump");
    object["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
    let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
    assert_eq!(injected.outcome.skip, Some(Reason::OptedOut));
    let template = &injected.object["spec"]["replicaSpecs"]["Master"]["template"];
    assert_eq!(template["metadata"]["annotations"]["swansong.dev/inject"], "false");
    assert_eq!(template["spec"], object["spec"]["replicaSpecs"]["Master"]["template"]["spec"]);
}

#[test]
fn a_volcano_job_gets_the_label_for_clusterd() {
    let mut object = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "v", "annotations": {"recover-strategy": "dump"}},
        "spec": {"tasks": [{"name": "t", "template": {"spec": {"containers": [{"name": "x"}]}}}]},
    });
    let injected = run(WorkloadKind::VolcanoJob, &object, &Policy::default());
    assert_eq!(injected.object["metadata"]["labels"], json!({"process-recover-enable": "on"}));
    assert_eq!(injected.warned(), [Reason::VolcanoNoOperatorEnv]);

    object["metadata"]["labels"] = json!({"process-recover-enable": "off"});
    let injected = run(WorkloadKind::VolcanoJob, &object, &Policy::default());
    assert_eq!(injected.object["metadata"]["labels"], object["metadata"]["labels"]);
    assert_eq!(injected.warned(), [Reason::ProcessRecoverOff, Reason::VolcanoNoOperatorEnv]);
}

#[test]
fn a_skipped_job_is_not_reported_as_normalised() {
    let mut object = job("retry, dump");
    object["metadata"]["annotations"]["swansong.dev/inject"] = json!("false");
    let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
    assert_eq!(injected.outcome.skip, Some(Reason::OptedOut));
    assert_eq!(injected.object["metadata"], object["metadata"]);
    assert_eq!(injected.warned(), [Reason::StrategyPadded]);

    let windows = json!({"kubernetes.io/os": "windows"});
    let mut object = job("retry, dump");
    object["spec"]["replicaSpecs"]["Master"]["template"]["spec"]["nodeSelector"] = windows;
    let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
    assert_eq!(injected.object, object);
    assert_eq!(injected.warned(), [Reason::StrategyPadded, Reason::Windows]);
}

#[test]
fn a_strategy_on_the_template_only_is_warned_about() {
    let mut object = job("dump");
    object["metadata"]["annotations"] = json!({});
    let template = "/spec/replicaSpecs/Master/template";
    object.pointer_mut(template).unwrap()["metadata"] = json!({"annotations": {"recover-strategy": "dump"}});
    assert_eq!(
        run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
        [Reason::StrategyOnTemplateOnly]
    );
    object["metadata"]["annotations"] = json!({"recover-strategy": "recover"});
    assert_eq!(
        run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
        [Reason::StrategyDiffers, Reason::DumpUnprotected]
    );
    object["metadata"]["labels"] = json!({});
    assert_eq!(
        run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
        [Reason::StrategyDiffers, Reason::DumpUnprotected, Reason::ProcessRecoverOff]
    );
}

#[test]
fn the_marker_of_the_operator_overrides_the_strategy_of_a_pod() {
    let mut object = ascend(json!({"env": [{"name": "HIGH_AVAILABILITY", "value": "dump,recover"}]}));
    object["metadata"]["annotations"]["recover-strategy"] = json!("recover");
    let injected = pod(&object);
    assert!(injected.outcome.injected());
    assert_eq!(injected.outcome.strategies, ["recover", "dump"]);
}

#[test]
fn a_job_without_rank_zero_is_warned_about() {
    let mut object = job("dump");
    let specs = object["spec"]["replicaSpecs"].as_object_mut().unwrap();
    let template = specs.remove("Master").unwrap();
    specs.insert("Worker".to_owned(), template);
    assert_eq!(run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(), [Reason::NoRankZero]);
}

#[test]
fn the_strategy_of_a_deployment_is_warned_about() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": {"recover-strategy": "dump"}},
        "spec": {"template": {"spec": {"containers": [{"name": "x"}]}}},
    });
    assert_eq!(
        run(WorkloadKind::Deployment, &object, &Policy::default()).warned(),
        [Reason::StrategyNotPropagated]
    );
}

#[test]
fn a_strategy_of_blanks_is_not_warned_about() {
    let injected = pod(&json!({
        "kind": "Pod", "metadata": {"annotations": {"recover-strategy": " , "}},
        "spec": {"containers": [{"name": "ascend"}]},
    }));
    assert_eq!(injected.outcome.skip, Some(Reason::StrategyWithoutDump));
    assert!(injected.outcome.warnings.is_empty(), "{:?}", injected.outcome.warnings);
}

#[test]
fn a_strategy_in_the_wrong_place_is_warned_about() {
    let mut object = job("dump");
    object["metadata"]["annotations"] = json!({"recover_strategy": "dump"});
    object["metadata"]["labels"] = json!({"recover-strategy": "dump"});
    let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
    assert_eq!(injected.warned(), [Reason::StrategyIsLabel, Reason::StrategyMisspelled]);
    assert_eq!(injected.outcome.skip, Some(Reason::NoStrategy));
    assert_eq!(injected.object, object);

    // A no-break space before the key.
    object["metadata"] = json!({"annotations": {"\u{a0}recover-strategy": "dump"}});
    let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
    assert_eq!(injected.warned(), [Reason::StrategyMisspelled]);
    assert!(injected.outcome.warnings[0].message.contains("\\u{a0}"), "{:?}", injected.outcome.warnings);
}

#[test]
fn an_unknown_option_is_warned_about_with_the_nearest_one() {
    let mut object = ascend(json!({}));
    object["metadata"]["annotations"]["swansong.dev/skip-preloads"] = json!("ascend");
    let injected = pod(&object);
    assert_eq!(injected.warned(), [Reason::OptionUnknown]);
    assert!(injected.outcome.warnings[0].message.contains("did you mean \"swansong.dev/skip-preload\"?"));
}

#[test]
fn options_with_another_spelling_or_as_labels_are_warned_about() {
    for key in ["swansong.dev/Inject", "swansong.io/inject", "swansong/inject"] {
        let mut object = ascend(json!({}));
        object["metadata"]["annotations"][key] = json!("false");
        let injected = pod(&object);
        assert_eq!(injected.warned(), [Reason::OptionUnknown], "{key}");
        assert!(
            injected.outcome.warnings[0].message.contains("did you mean \"swansong.dev/inject\"?"),
            "{key}"
        );
    }
    let mut object = ascend(json!({}));
    object["metadata"]["labels"] = json!({"swansong.dev/inject": "false", "app": "train"});
    let injected = pod(&object);
    assert_eq!(injected.warned(), [Reason::OptionIsLabel]);
    assert_eq!(injected.outcome.skip, None);
    assert_eq!(injected.object["metadata"]["labels"], object["metadata"]["labels"]);
}

#[test]
fn switches_have_any_case() {
    for (value, warned) in [("False", false), ("NO", false), ("'false'", false), ("perhaps", true)] {
        let mut object = ascend(json!({}));
        object["metadata"]["annotations"]["swansong.dev/protect-dump"] = json!(value);
        let injected = pod(&object);
        assert_eq!(injected.warned().contains(&Reason::OptionInvalid), warned, "{value}");
        let is_protected =
            injected.object["metadata"]["annotations"].get("swansong.dev/launcher-hook.py").is_some();
        assert_eq!(is_protected, warned, "{value}");
    }
}
