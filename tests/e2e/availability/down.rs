//! No replica that answers: what is created all the same, and what is refused (B52, B53).

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use swansong_demo::{definitions, install, operator};
use swansong_testcluster::eventually;

use crate::fates::{fates, why_let_through};
use crate::site::{NAMESPACE, PATIENCE, Site, asking_pod, freeze, is_injected, plain_pod, signal, site};

/// A Pod that meets the restricted standard of Swansong's own namespace, asks for a dump, runs and ends.
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

/// Waits until a Pod has run to its end, and removes it so that the next test may use its name.
async fn runs(site: &Site<'_>, namespace: &str, name: &str) {
    let pods: Api<Pod> = Api::namespaced(site.client.clone(), namespace);
    eventually("the Pod runs to its end", PATIENCE, || async {
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
    eventually("Pods are injected again", PATIENCE, || async {
        attempt.set(attempt.get() + 1);
        let pod = asking_pod(&format!("again-{}", attempt.get()));
        let stored = site.create(namespace, &pod).await.map_err(|error| error.to_string())?;
        if is_injected(&stored) { Ok(()) } else { Err("created without injection".to_owned()) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn b53_while_nobody_answers_pods_are_created_without_injection_and_that_is_noted() {
    let Some(site) = site().await else { return };
    site.install("base").await;
    let namespace = site.cluster.namespace("away").await.unwrap();

    site.scale(0).await;
    let stored = site.create(&namespace, &asking_pod("nobody-there")).await.unwrap();
    assert!(!is_injected(&stored));
    site.scale(3).await;
    answers_again(&site, &namespace).await;

    // Worse than refused connections: replicas that take them and say nothing, until the time is over.
    let replicas = site.replicas().await;
    for replica in &replicas {
        freeze(replica).await;
    }
    let stored = site.create(&namespace, &asking_pod("nobody-speaks")).await;
    for replica in &replicas {
        signal(replica, Signal::SIGCONT);
    }
    assert!(!is_injected(&stored.unwrap()));
    answers_again(&site, &namespace).await;

    let fates = fates(site.cluster, &namespace);
    for name in ["nobody-there", "nobody-speaks"] {
        let fate = fates[name];
        assert!(fate.code == 201 && fate.let_through && !fate.answered, "{name}: {fate:?}");
    }
    let reasons = why_let_through(site.cluster);
    let timed_out = |reason: &String| reason.contains("deadline exceeded") || reason.contains("timeout");
    assert!(reasons.keys().any(timed_out), "{reasons:?}");
}

#[tokio::test]
async fn b52_strict_and_away_only_who_asks_is_refused_and_swansong_starts_again() {
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

    // Whoever asks for nothing, or asks to be left alone, isn't Swansong's to stop.
    assert!(!is_injected(&site.create(&namespace, &plain_pod("plain")).await.unwrap()));
    jobs.create(&parameters, &ascend_job("plain", &json!({}))).await.unwrap();
    let mut left_alone = asking_pod("left-alone");
    left_alone.annotations_mut().insert("swansong.dev/inject".to_owned(), "false".to_owned());
    assert!(!is_injected(&site.create(&namespace, &left_alone).await.unwrap()));

    // The cluster's own and Swansong's own, even if they ask.
    for namespace in ["kube-system", NAMESPACE] {
        let stored = site.create(namespace, &short_pod("asks-here")).await.unwrap();
        assert!(!is_injected(&stored), "{namespace}");
        runs(&site, namespace, "asks-here").await;
    }

    // No deadlock: the replicas are Pods, too.
    site.scale(3).await;
    answers_again(&site, &namespace).await;
    let fates = fates(site.cluster, &namespace);
    assert!(fates.values().all(|fate| !fate.let_through), "{fates:?}");
    let fate = fates["plain"];
    assert!(!fate.answered, "plain: {fate:?}");
}
