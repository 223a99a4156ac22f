//! From an annotation to training processes that are ready to dump.

use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use swansong_demo::{evidence, operator, proof};
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::workload::WorkloadKind;

use crate::rig::{broken, cluster, create, job, opted_out, run, template};

/// For processes that can't reach each other, so that the test needn't wait long.
const SHORT_TIMEOUT: [&str; 2] = ["--timeout", "3"];

#[tokio::test]
async fn a_job_with_only_the_annotation_is_ready_to_dump() {
    let Some(cluster) = cluster().await else { return };
    let client = cluster.client().await.unwrap();
    for framework in ["pytorch", "mindspore"] {
        let namespace = cluster.namespace(framework).await.unwrap();
        let stored = create(&client, &namespace, job("whole", framework, "dump", &[])).await;
        assert_eq!(broken(&run(&client, &stored).await), [], "{framework}");
        let reset_config = evidence::reset_config(&client, &namespace, "whole").await.unwrap();
        let link = proof::reset_config(&reset_config, &stored.uid().unwrap());
        assert_eq!(broken(&[link]), [], "{framework}");
    }
}

#[tokio::test]
async fn a_strategy_with_a_blank_reaches_the_operator_without() {
    let Some(cluster) = cluster().await else { return };
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("blank").await.unwrap();
    let stored = create(&client, &namespace, job("blank", "pytorch", "recover, dump", &[])).await;
    assert_eq!(stored.annotations()["recover-strategy"], "recover,dump");
    assert_eq!(broken(&run(&client, &stored).await), []);
}

/// Without this test, the other tests might pass without Swansong.
#[tokio::test]
async fn without_swansong_only_the_operators_own_link_holds() {
    let Some(cluster) = cluster().await else { return };
    let client = cluster.client().await.unwrap();
    let namespace = opted_out(cluster, "bare").await;
    let stored = create(&client, &namespace, job("bare", "pytorch", "dump", &SHORT_TIMEOUT)).await;
    let links = run(&client, &stored).await;
    let holding: Vec<_> = links.iter().filter(|link| link.holds()).map(|link| link.claim.as_str()).collect();
    let operators =
        ["bare-master-0", "bare-worker-0"].map(|pod| format!("{pod}: the operator announces the dump"));
    assert_eq!(holding, operators);
}

#[tokio::test]
async fn a_job_injected_on_the_command_line_needs_no_webhook() {
    let Some(cluster) = cluster().await else { return };
    let client = cluster.client().await.unwrap();
    let namespace = opted_out(cluster, "offline").await;
    let mut job = job("offline", "pytorch", "dump", &[]);
    let outcome = inject(WorkloadKind::AscendJob, &job.to_string(), &Policy::default()).unwrap();
    let operations = serde_json::to_value(&outcome.operations).unwrap();
    json_patch::patch(&mut job, &serde_json::from_value::<json_patch::Patch>(operations).unwrap()).unwrap();
    let stored = create(&client, &namespace, job).await;
    assert_eq!(broken(&run(&client, &stored).await), []);
}

/// A job that was there before Swansong: its pods are known by the operator's environment, but its
/// Service is made from the job's own ports.
#[tokio::test]
async fn pods_of_a_job_that_was_never_changed_are_served_as_far_as_a_pod_goes() {
    let Some(cluster) = cluster().await else { return };
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("older").await.unwrap();
    let mut older = job("older", "pytorch", "dump", &SHORT_TIMEOUT);
    // Swansong ignores a job that is stored without the annotation, and it doesn't change objects on update.
    older["metadata"]["annotations"] = Value::Null;
    create(&client, &namespace, older).await;
    let jobs = operator::ascend_jobs(client.clone(), &namespace);
    let annotation = json!({ "metadata": { "annotations": { "recover-strategy": "dump" } } });
    let stored: DynamicObject =
        jobs.patch("older", &PatchParams::default(), &Patch::Merge(annotation)).await.unwrap();
    let value = serde_json::to_value(&stored).unwrap();
    assert!(template(&value, "Master")["spec"]["containers"][0]["env"].is_null(), "it was changed: {value}");

    let links = run(&client, &stored).await;
    let claims: Vec<_> = broken(&links).into_iter().map(|(claim, _)| claim).collect();
    assert_eq!(
        claims,
        [
            "Service older-master-0 has ttp-port",
            "Service older-master-0 has taskd-port",
            "older-worker-0: reaches rank 0 on 8000 through the Service",
            "older-worker-0: reaches rank 0 on 9601 through the Service",
        ]
    );
}
