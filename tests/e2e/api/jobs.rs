//! Injection of jobs.

use serde_json::{Value, json};
use swansong_inject::reason::Reason;

use crate::support::{calls, create, examine, rig};

fn ascend_job(name: &str, strategy: &str) -> Value {
    let template = json!({"spec": {"containers": [{
        "name": "ascend", "image": "train:1",
        "ports": [{"containerPort": 2222, "name": "ascendjob-port"}],
        "resources": {"limits": {"huawei.com/Ascend910": 8}, "requests": {"huawei.com/Ascend910": 8}},
    }]}});
    json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": {"name": name, "labels": {"framework": "pytorch"}, "annotations": {"recover-strategy": strategy}},
        "spec": {"replicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": "Never", "template": template},
            "Worker": {"replicas": 1, "restartPolicy": "Never", "template": template},
        }},
    })
}

fn volcano_job(name: &str, strategy: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "annotations": {"recover-strategy": strategy}},
        "spec": {"minAvailable": 1, "tasks": [{"name": "worker", "replicas": 2, "template": {"spec": {"containers": [{"name": "train", "image": "x"}]}}}]},
    })
}

/// Jobs without a strategy, whose missing or empty maps a CEL condition has to handle.
pub(crate) fn without_strategy() -> Vec<Value> {
    let mut jobs = Vec::new();
    for (number, metadata) in [
        json!({}),
        json!({"annotations": {}}),
        json!({"annotations": {"a": "b"}}),
        json!({"labels": {"a": "b"}}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut ascend = ascend_job(&format!("quiet-{number}"), "");
        let mut volcano = volcano_job(&format!("quiet-{number}"), "");
        for job in [&mut ascend, &mut volcano] {
            job["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        ascend["spec"]["replicaSpecs"]["Master"]["template"]["metadata"] = metadata.clone();
        volcano["spec"]["tasks"][0]["template"]["metadata"] = metadata;
        jobs.extend([ascend, volcano]);
    }
    jobs
}

#[tokio::test]
async fn an_ascend_job_with_only_the_annotation_is_injected() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("ascendjob").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let stored = create(&client, &namespace, ascend_job("j", "dump")).await.unwrap();
    for replica in ["Master", "Worker"] {
        let template = &stored["spec"]["replicaSpecs"][replica]["template"];
        assert_eq!(template["metadata"]["annotations"]["recover-strategy"], "dump", "{replica}");
        let container = &template["spec"]["containers"][0];
        let ports: Vec<_> = container["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| (port["name"].clone(), port["containerPort"].clone()))
            .collect();
        assert_eq!(
            ports,
            [
                (json!("ascendjob-port"), json!(2222)),
                (json!("ttp-port"), json!(8000)),
                (json!("taskd-port"), json!(9601))
            ]
        );
        let names: Vec<_> =
            container["env"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
        assert_eq!(names, ["POD_IP", "TTP_PORT", "TASKD_PROCESS_ENABLE", "LD_PRELOAD"]);

        // Its Pods have everything and need no operation.
        let name = format!("j-{}-0", replica.to_lowercase());
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        env.extend([
            json!({"name": "HIGH_AVAILABILITY", "value": "dump"}),
            json!({"name": "RANK", "value": "0"}),
        ]);
        create(&client, &namespace, pod).await.unwrap();
        let calls = calls(rig.cluster, &namespace, &name);
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert_eq!(calls[0]["mutated"], false, "{calls:?}");
    }
}

#[tokio::test]
async fn a_padded_strategy_is_stored_normalised() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("padded").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let stored = create(&client, &namespace, ascend_job("j", "recover, dump")).await.unwrap();
    assert_eq!(stored["metadata"]["annotations"]["recover-strategy"], "recover,dump");
    assert!(examine(&stored).operations.is_empty());
}

#[tokio::test]
async fn a_volcano_job_gets_label_strategy_and_env() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("volcano").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let stored = create(&client, &namespace, volcano_job("v", "dump")).await.unwrap();
    assert_eq!(stored["metadata"]["labels"]["process-recover-enable"], "on");
    let template = &stored["spec"]["tasks"][0]["template"];
    assert_eq!(template["metadata"]["annotations"]["recover-strategy"], "dump");
    assert_eq!(template["spec"]["containers"][0]["env"][1], json!({"name": "TTP_PORT", "value": "8000"}));
    let outcome = examine(&stored);
    assert!(outcome.operations.is_empty());
    assert_eq!(
        outcome.warnings.iter().map(|warning| warning.reason).collect::<Vec<_>>(),
        [Reason::VolcanoNoOperatorEnv]
    );
}

/// Changing templates of controllers that reconcile would loop (kubernetes#61998, #58032).
#[tokio::test]
async fn other_workloads_are_not_changed_in_a_cluster() {
    let rig = rig().await;
    let namespace = rig.cluster.namespace("others").await.unwrap();
    let client = rig.cluster.client().await.unwrap();
    let template = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"recover-strategy": "dump"}},
        "spec": {"containers": [{"name": "ascend", "image": "x"}], "restartPolicy": "Always"},
    });
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": {"a": "b"}});
    let annotations = json!({"recover-strategy": "dump"});
    for (name, mut object) in [
        (
            "deployment",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"selector": selector, "template": template}}),
        ),
        (
            "statefulset",
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"selector": selector, "serviceName": "s", "template": template}}),
        ),
        ("job", json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": once}})),
    ] {
        object["metadata"] = json!({"name": name, "annotations": annotations});
        let stored = create(&client, &namespace, object).await.unwrap();
        assert!(stored["spec"]["template"]["spec"]["containers"][0].get("env").is_none(), "{name}");
        assert!(calls(rig.cluster, &namespace, name).is_empty(), "{name}");
    }
}
