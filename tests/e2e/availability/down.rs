//! Without a responding replica: what is created, and what is rejected.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use swansong_demo::{definitions, install, operator};
use swansong_testcluster::eventually;

use crate::outcomes::{call_failures, outcomes};
use crate::site::{NAMESPACE, Site, TIMEOUT, asking_pod, freeze, is_injected, plain_pod, signal, site};

/// A Pod that meets the restricted standard of Swansong's namespace, asks for a dump, runs and ends.
fn short_pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "annotations": { "recover-strategy": "dump" } },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "ascend", "image": install::IMAGE, "imagePullPolicy": "Never", "args": ["--version"],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    }))
    .unwrap()
}

fn ascend_job(name: &str, annotations: &Value) -> kube::api::DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "replicaSpecs": { "Master": {
            "replicas": 1,
            "template": { "spec": { "containers": [{ "name": "ascend", "image": install::IMAGE }] } },
        } } },
    }))
    .unwrap()
}

/// Waits until a Pod has succeeded, and deletes it.
async fn runs(site: &Site<'_>, namespace: &str, name: &str) {
    let pods: Api<Pod> = Api::namespaced(site.client.clone(), namespace);
    eventually("the Pod succeeds", TIMEOUT, || async {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let status = pod.status.unwrap_or_default();
        if status.phase.as_deref() == Some("Succeeded") { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await
    .unwrap();
    pods.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
}

/// Waits until new Pods are injected again.
async fn answers_again(site: &Site<'_>, namespace: &str) {
    let attempt = std::cell::Cell::new(0);
    eventually("Pods are injected again", TIMEOUT, || async {
        attempt.set(attempt.get() + 1);
        let pod = asking_pod(&format!("again-{}", attempt.get()));
        let stored = site.create(namespace, &pod).await.map_err(|error| error.to_string())?;
        if is_injected(&stored) { Ok(()) } else { Err("created without injection".to_owned()) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn without_a_response_pods_are_created_without_injection_and_audited() {
    let Some(site) = site().await else { return };
    site.install("base").await;
    let namespace = site.cluster.namespace("away").await.unwrap();

    site.scale(0).await;
    let stored = site.create(&namespace, &asking_pod("no-replica")).await.unwrap();
    assert!(!is_injected(&stored));
    site.scale(3).await;
    answers_again(&site, &namespace).await;

    // Worse than refused connections: replicas that accept them and don't respond before the timeout.
    let replicas = site.replicas().await;
    for replica in &replicas {
        freeze(replica).await;
    }
    let stored = site.create(&namespace, &asking_pod("no-response")).await;
    for replica in &replicas {
        signal(replica, Signal::SIGCONT);
    }
    assert!(!is_injected(&stored.unwrap()));
    answers_again(&site, &namespace).await;

    let outcomes = outcomes(site.cluster, &namespace);
    for name in ["no-replica", "no-response"] {
        let outcome = outcomes[name];
        assert!(
            outcome.code == 201 && outcome.admitted_unprocessed && !outcome.answered,
            "{name}: {outcome:?}"
        );
    }
    let reasons = call_failures(site.cluster);
    let timed_out = |reason: &String| reason.contains("deadline exceeded") || reason.contains("timeout");
    assert!(reasons.keys().any(timed_out), "{reasons:?}");
}

#[tokio::test]
async fn the_strict_overlay_rejects_only_jobs_that_ask_for_a_dump_and_lets_swansong_restart() {
    let Some(site) = site().await else { return };
    definitions::apply(site.cluster, &definitions::file()).await.unwrap();
    site.install("overlays/strict").await;
    let namespace = site.cluster.namespace("strict").await.unwrap();
    site.scale(0).await;

    let refused = site.create(&namespace, &asking_pod("asks")).await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook \"pods.swansong.dev\""), "{refused}");
    let jobs = operator::ascend_jobs(site.client.clone(), &namespace);
    let parameters = kube::api::PostParams::default();
    let job = ascend_job("asks", &json!({ "recover-strategy": "dump" }));
    let refused = jobs.create(&parameters, &job).await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook \"ascendjobs.swansong.dev\""), "{refused}");

    // Objects that ask for nothing, or opt out, aren't rejected.
    assert!(!is_injected(&site.create(&namespace, &plain_pod("plain")).await.unwrap()));
    jobs.create(&parameters, &ascend_job("plain", &json!({}))).await.unwrap();
    let mut opted_out = asking_pod("opted-out");
    opted_out.annotations_mut().insert("swansong.dev/inject".to_owned(), "false".to_owned());
    assert!(!is_injected(&site.create(&namespace, &opted_out).await.unwrap()));

    // Pods in kube-system and Swansong's namespace aren't rejected either.
    for namespace in ["kube-system", NAMESPACE] {
        let stored = site.create(namespace, &short_pod("asks-here")).await.unwrap();
        assert!(!is_injected(&stored), "{namespace}");
        runs(&site, namespace, "asks-here").await;
    }

    // The replicas are Pods themselves; the overlay must not reject them.
    site.scale(3).await;
    answers_again(&site, &namespace).await;
    let outcomes = outcomes(site.cluster, &namespace);
    assert!(outcomes.values().all(|outcome| !outcome.admitted_unprocessed), "{outcomes:?}");
    let outcome = outcomes["plain"];
    assert!(!outcome.answered, "plain: {outcome:?}");
}
