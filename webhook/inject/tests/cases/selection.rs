//! Selection of containers.

use super::*;

fn chosen(object: &Value) -> Vec<String> {
    let outcome = pod(object).outcome;
    outcome.templates[0].containers.iter().map(|container| container.name.clone()).collect()
}

#[test]
fn the_default_choice_is_never_a_guess() {
    let npu = json!({"limits": {"huawei.com/Ascend910": "8"}});
    for (containers, expected) in [
        (json!([{"name": "x"}, {"name": "ascend"}]), vec!["ascend"]),
        (json!([{"name": "x"}, {"name": "y", "resources": npu}]), vec!["y"]),
        (json!([{"name": "x"}]), vec!["x"]),
        (json!([{"name": "x"}, {"name": "y"}]), vec![]),
    ] {
        assert_eq!(chosen(&pod_with(containers.clone())), expected, "{containers}");
    }
    let injected = pod(&pod_with(json!([{"name": "x"}, {"name": "y"}])));
    assert_eq!(injected.outcome.skip, Some(Reason::NoContainerChosen));
    assert!(injected.outcome.operations.is_empty());
    assert!(injected.outcome.warnings[0].message.contains("x, y"));
}

#[test]
fn a_container_that_is_added_after_the_injection_is_not_chosen() {
    for sidecar in [
        json!({"name": "proxy"}),
        json!({"name": "proxy", "resources": {"limits": {"huawei.com/Ascend910": 1}}}),
    ] {
        for at_end in [true, false] {
            let mut object = pod(&pod_with(json!([{"name": "trainer"}]))).object;
            let containers = object["spec"]["containers"].as_array_mut().unwrap();
            containers.insert(if at_end { containers.len() } else { 0 }, sidecar.clone());
            let injected = pod(&object);
            assert_eq!(injected.outcome.operations.len(), 0, "{sidecar}");
            assert!(injected.warned().is_empty(), "{sidecar} {:?}", injected.outcome.warnings);
            assert_eq!(chosen(&object), ["trainer"], "{sidecar}");
        }
    }
    // A record of another Pod names none of the containers.
    let mut object = pod(&pod_with(json!([{"name": "trainer"}]))).object;
    object["spec"]["containers"][0]["name"] = json!("renamed");
    assert_eq!(chosen(&object), ["renamed"]);
}

#[test]
fn the_annotation_selects_exactly_the_named_containers() {
    let mut object = pod_with(json!([{"name": "ascend"}, {"name": "y"}]));
    object["metadata"]["annotations"]["swansong.dev/containers"] = json!(" y , missing ");
    assert_eq!(chosen(&object), ["y"]);
    assert_eq!(pod(&object).warned(), [Reason::UnknownContainer]);
}

#[test]
fn a_request_of_zero_npus_does_not_count() {
    for zero in [json!("0"), json!(0), json!("0.0"), json!("0k"), json!(null), json!({})] {
        let containers = json!([
            {"name": "trainer", "resources": {"limits": {"huawei.com/Ascend910": 8}}},
            {"name": "board", "resources": {"limits": {"huawei.com/Ascend910": zero}}},
        ]);
        assert_eq!(chosen(&pod_with(containers)), ["trainer"], "{zero}");
    }
    for some in [json!("8"), json!(1), json!("1k"), json!("0.5")] {
        let board = json!({"name": "board", "resources": {"requests": {"huawei.com/Ascend910": some}}});
        assert_eq!(chosen(&pod_with(json!([{"name": "x"}, board]))), ["board"], "{some}");
    }
}

#[test]
fn a_launcher_without_npus_is_neither_chosen_nor_rank_zero() {
    let task = |name: &str, resources: Value| json!({"name": name, "template": {"spec": {"hostNetwork": true, "containers": [{"name": name, "resources": resources}]}}});
    let npus = json!({"limits": {"huawei.com/Ascend910": 8}});
    let mut job = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "mpi", "annotations": {"recover-strategy": "dump"}},
        "spec": {"tasks": [task("launcher", json!({})), task("worker", npus)]},
    });
    let injected = run(WorkloadKind::VolcanoJob, &job, &Policy::default());
    let [launcher, worker] = &injected.outcome.templates[..] else { panic!("two templates") };
    assert_eq!((launcher.skip, launcher.rank_zero), (Some(Reason::TemplateWithoutNpu), false));
    assert_eq!((worker.skip, worker.rank_zero), (None, true));
    assert_eq!(injected.object["spec"]["tasks"][0], job["spec"]["tasks"][0]);
    assert_eq!(
        injected.object["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"],
        8000
    );
    assert_eq!(injected.noted(), [Reason::TemplateWithoutNpu]);

    job["spec"]["tasks"][0]["template"]["metadata"] =
        json!({"annotations": {"swansong.dev/containers": "launcher"}});
    let injected = run(WorkloadKind::VolcanoJob, &job, &Policy::default());
    assert_eq!(injected.outcome.templates[0].skip, None);
}

#[test]
fn the_index_of_a_pod_decides_about_rank_zero() {
    for key in [
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "jobset.sigs.k8s.io/job-global-index",
        "jobset.sigs.k8s.io/job-index",
        "training.kubeflow.org/replica-index",
    ] {
        for (index, is_rank_zero) in [("0", true), ("1", false)] {
            let mut object = ascend(json!({}));
            object["metadata"]["labels"] = json!({key: index});
            assert_eq!(pod(&object).outcome.templates[0].rank_zero, is_rank_zero, "{key}={index}");
        }
    }
    let mut object = ascend(json!({}));
    object["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!("1");
    assert!(!pod(&object).outcome.templates[0].rank_zero);
    let mut object = ascend(json!({"env": [{"name": "RANK", "value": "0"}]}));
    object["metadata"]["labels"] = json!({"apps.kubernetes.io/pod-index": "3"});
    assert!(pod(&object).outcome.templates[0].rank_zero);
}

#[test]
fn several_indices_of_a_pod_are_combined() {
    let job = "batch.kubernetes.io/job-completion-index";
    let set = "apps.kubernetes.io/pod-index";
    let group = "leaderworkerset.sigs.k8s.io/worker-index";
    let name = "statefulset.kubernetes.io/pod-name";
    for (labels, is_rank_zero) in [
        // The leaders of a LeaderWorkerSet are Pods of a StatefulSet, each the first of its group.
        (json!({set: "3", group: "0", name: "llm-3"}), true),
        (json!({set: "1", group: "1", name: "llm-0-1"}), false),
        // The first Pod of the second Job of a JobSet.
        (json!({"jobset.sigs.k8s.io/job-index": "1", job: "0"}), false),
        (json!({"jobset.sigs.k8s.io/job-index": "0", job: "0"}), true),
        // A cluster without a label for the index.
        (json!({name: "train-2"}), false),
        (json!({name: "train-0"}), true),
    ] {
        let mut object = ascend(json!({}));
        object["metadata"]["labels"] = labels.clone();
        assert_eq!(pod(&object).outcome.templates[0].rank_zero, is_rank_zero, "{labels}");
    }
    let mut object = ascend(json!({}));
    object["metadata"]["annotations"][group] = json!("2");
    assert!(!pod(&object).outcome.templates[0].rank_zero, "an annotation");
}

#[test]
fn negative_values_of_inject_opt_out() {
    for (value, opts_out) in [
        ("N", true),
        ("never", true),
        ("disable", true),
        ("'false'", true),
        ("\"False\"", true),
        ("t", false),
        ("enable", false),
        ("False", true),
        ("no", true),
        ("0", true),
        ("OFF", true),
        ("disabled", true),
        ("True", false),
        ("yes", false),
        ("1", false),
    ] {
        let mut object = ascend(json!({}));
        object["metadata"]["annotations"]["swansong.dev/inject"] = json!(value);
        let injected = pod(&object);
        assert_eq!(injected.outcome.skip == Some(Reason::OptedOut), opts_out, "{value}");
        assert!(injected.warned().is_empty(), "{value}");
    }
    let mut object = ascend(json!({}));
    object["metadata"]["annotations"]["swansong.dev/inject"] = json!("maybe");
    assert_eq!(pod(&object).warned(), [Reason::OptionInvalid]);
}

#[test]
fn mirror_pods_are_left_unchanged() {
    let mut object = ascend(json!({}));
    object["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("0123");
    let injected = pod(&object);
    assert_eq!((injected.outcome.skip, injected.object), (Some(Reason::MirrorPod), object));
}
