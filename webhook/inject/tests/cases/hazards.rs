//! Settings of a job with which a dump may be lost.

use super::*;

fn job(labels: Value, spec: Value) -> Value {
    let mut spec = spec;
    spec["replicaSpecs"] = json!({
        "Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "ascend"}]}}},
        "Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "ascend"}]}}},
    });
    json!({
        "kind": "AscendJob",
        "metadata": {"labels": labels, "annotations": {"recover-strategy": "dump"}},
        "spec": spec,
    })
}

#[test]
fn settings_that_lose_a_dump_are_warned_about() {
    let force = Reason::FaultSchedulingForce;
    let clean = Reason::CleanPodPolicyDeletesSavers;
    for (labels, spec, expected) in [
        (json!({"framework": "pytorch"}), json!({}), vec![]),
        (json!({"fault-scheduling": "grace"}), json!({"runPolicy": {"cleanPodPolicy": "None"}}), vec![]),
        (json!({"fault-scheduling": "force"}), json!({"runPolicy": null}), vec![force]),
        (json!({"a": "b"}), json!({"runPolicy": {"cleanPodPolicy": "Running"}}), vec![clean]),
        (
            json!({"fault-scheduling": "force"}),
            json!({"runPolicy": {"cleanPodPolicy": "All"}}),
            vec![clean, force],
        ),
    ] {
        let object = job(labels, spec);
        let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
        assert_eq!(injected.warned(), expected, "{object}");
        assert_eq!(injected.noted(), []);
    }
}

#[test]
fn job_of_one_pod_is_noted() {
    let mut object = job(json!({"a": "b"}), json!({}));
    object["spec"]["replicaSpecs"]["Worker"]["replicas"] = json!(0);
    assert_eq!(run(WorkloadKind::AscendJob, &object, &Policy::default()).noted(), [Reason::OnePod]);
}

#[test]
fn pods_that_mindcluster_advises_against_are_warned_about_once() {
    let memory = |limit: &str| {
        json!({"containers": [{"name": "ascend", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm/"}]}],
               "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": limit}}]})
    };
    let rank_table = |name: &str| {
        json!({"containers": [{"name": "ascend", "volumeMounts": [{"name": "table", "mountPath": "/user/serverid"}]}],
               "volumes": [{"name": "table", "configMap": {"name": name}}]})
    };
    let helper = json!({"name": "logs", "restartPolicy": "Always"});
    for (pod, expected) in [
        (memory("16Gi"), vec![]),
        (memory("8Gi"), vec![Reason::SharedMemorySmall]),
        (memory("17G"), vec![Reason::SharedMemorySmall]),
        (memory("much"), vec![]),
        (rank_table("rings-config-j"), vec![Reason::RankTableFromConfigMap]),
        (rank_table("my-scripts"), vec![]),
        (json!({"containers": [{"name": "ascend"}, {"name": "logs"}]}), vec![Reason::SeveralContainers]),
        (json!({"containers": [{"name": "ascend"}], "initContainers": [helper]}), vec![]),
    ] {
        let mut object = job(json!({"a": "b"}), json!({}));
        for replica in ["Master", "Worker"] {
            object["spec"]["replicaSpecs"][replica]["template"]["spec"] = pod.clone();
        }
        let injected = run(WorkloadKind::AscendJob, &object, &Policy::default());
        assert_eq!(injected.warned(), expected, "{object}");
    }
}
