//! The annotation recover-strategy, wherever it stands.

use super::*;

fn job(annotation: &str) -> Value {
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": "j", "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": annotation}},
        "spec": {"replicaSpecs": {"Master": {"template": {"spec": {"containers": [{"name": "ascend"}]}}}}},
    })
}

#[test]
fn an_ascend_jobs_list_is_rewritten_as_the_operator_reads_it() {
    let injected = run(WorkloadKind::AscendJob, &job("recover, dump"), &Policy::default());
    assert_eq!(injected.object["metadata"]["annotations"]["recover-strategy"], "recover,dump");
    let template = &injected.object["spec"]["replicaSpecs"]["Master"]["template"];
    assert_eq!(template["metadata"]["annotations"]["recover-strategy"], "recover,dump");
    assert_eq!(injected.warned(), [Reason::StrategyNormalised]);
    assert_eq!(injected.outcome.strategies, ["recover", "dump"]);
}

#[test]
fn typos_are_told_even_when_nothing_is_done() {
    let injected = run(WorkloadKind::AscendJob, &job("recover，dump"), &Policy::default());
    assert_eq!(injected.outcome.skip, Some(Reason::StrategyWithoutDump));
    assert!(injected.outcome.operations.is_empty());
    assert!(injected.outcome.warnings[0].message.contains("plain comma"));
}

#[test]
fn pods_of_an_injected_job_need_no_operation() {
    let injected = run(WorkloadKind::AscendJob, &job("dump"), &Policy::default()).object;
    let template = &injected["spec"]["replicaSpecs"]["Master"]["template"];
    let mut pod_object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    // ascend-operator appends its own.
    let env = pod_object["spec"]["containers"][0]["env"].as_array_mut().unwrap();
    env.extend([
        json!({"name": "HIGH_AVAILABILITY", "value": "dump"}),
        json!({"name": "RANK", "value": "0"}),
    ]);
    assert!(pod(&pod_object).outcome.operations.is_empty());
    assert!(pod(&pod_object).outcome.injected());
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
fn a_volcano_job_gets_the_label_clusterd_wants() {
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
fn a_job_left_alone_is_not_said_to_be_rewritten() {
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
fn where_the_strategy_stands_matters() {
    let mut object = job("dump");
    object["metadata"]["annotations"] = json!({});
    let template = "/spec/replicaSpecs/Master/template";
    object.pointer_mut(template).unwrap()["metadata"] = json!({"annotations": {"recover-strategy": "dump"}});
    assert_eq!(
        run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
        [Reason::StrategyOnTemplateOnly]
    );
    object["metadata"]["annotations"] = json!({"recover-strategy": "recover"});
    assert_eq!(run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(), [Reason::StrategyDiffers]);
    object["metadata"]["labels"] = json!({});
    assert_eq!(
        run(WorkloadKind::AscendJob, &object, &Policy::default()).warned(),
        [Reason::StrategyDiffers, Reason::ProcessRecoverOff]
    );
}

#[test]
fn the_operators_marker_wins_over_a_pods_own_strategy() {
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
fn a_deployments_strategy_is_never_seen() {
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
fn a_list_of_blanks_is_no_spelling_to_mend() {
    let injected = pod(&json!({
        "kind": "Pod", "metadata": {"annotations": {"recover-strategy": " , "}},
        "spec": {"containers": [{"name": "ascend"}]},
    }));
    assert_eq!(injected.outcome.skip, Some(Reason::StrategyWithoutDump));
    assert!(injected.outcome.warnings.is_empty(), "{:?}", injected.outcome.warnings);
}
