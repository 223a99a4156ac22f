//! What the Node shows while the agent is restarted or gets another configuration.

use futures::{StreamExt as _, pin_mut};
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use swansong_testcluster::eventually;

use super::site::condition;
use super::{CONFIG, SOON, Site, TIMEOUT};

#[tokio::test]
async fn restarts_of_the_agent_do_not_change_the_status() {
    let site = Site::new("restart", CONFIG).await;
    for (broken, status, label) in [(false, "True", "true"), (true, "False", "false")] {
        if broken {
            site.host.remove("/dev/davinci_manager");
        }
        let agent = site.start();
        let shown = site.shows(status, label, TIMEOUT).await;
        let nodes = site.nodes();
        let params = WatchParams::default().fields(&format!("metadata.name={}", site.node));
        let version = site.get().await.metadata.resource_version.unwrap();
        let watch = nodes.watch(&params, &version).await.unwrap();
        let seen = tokio::spawn(async move {
            pin_mut!(watch);
            let mut seen = Vec::new();
            // The test sets this label last.
            while let Some(Ok(event)) = watch.next().await {
                let WatchEvent::Modified(node) = event else { continue };
                seen.push(condition(&node).map(|condition| condition.status));
                if node
                    .metadata
                    .labels
                    .is_some_and(|labels| labels.get("end").is_some_and(|end| end == status))
                {
                    break;
                }
            }
            seen
        });
        agent.kill();
        // Before, during and after the first round and write.
        for key in ["node", "observed", "report", "desired", "node", "observed", "report", "desired"] {
            let agent = site.start();
            eventually(&format!("/status shows {key}"), TIMEOUT, || async {
                let status: Value = serde_json::from_str(&agent.get("/status").1).unwrap_or_default();
                if status[key].is_null() { Err(status.to_string()) } else { Ok(()) }
            })
            .await
            .unwrap();
            agent.kill();
        }
        let agent = site.start();
        agent.ready().await;
        let end = json!({"metadata": {"labels": {"end": status}}});
        site.nodes().patch(&site.node, &PatchParams::default(), &Patch::Merge(end)).await.unwrap();
        let seen = seen.await.unwrap();
        assert!(seen.iter().all(|seen| seen.as_deref() == Some(status)), "{seen:?}");
        let after = condition(&site.get().await).unwrap();
        assert_eq!(after.last_transition_time, shown.last_transition_time);
    }
}

#[tokio::test]
async fn another_boot_is_unknown_until_checked() {
    let site = Site::new("boot", CONFIG).await;
    let agent = site.start();
    let before = site.shows("True", "true", TIMEOUT).await;
    agent.kill();
    site.host.file("/proc/sys/kernel/random/boot_id", "second-boot\n");
    let _agent = site.start();
    let id = "swansong.dev/boot-id";
    eventually("the boot id is written", TIMEOUT, || async {
        let boot_id = site.get().await.metadata.annotations.unwrap_or_default().get(id).cloned();
        if boot_id.as_deref() == Some("second-boot") { Ok(()) } else { Err(format!("{boot_id:?}")) }
    })
    .await
    .unwrap();
    // If the first round ends before the Node is known, Unknown isn't written in between.
    let after = site.shows("True", "true", TIMEOUT).await;
    assert!(after.last_transition_time >= before.last_transition_time);
}

#[tokio::test]
async fn a_device_that_goes_while_the_agent_is_dead_is_reported() {
    let site = Site::new("dead", CONFIG).await;
    let agent = site.start();
    site.shows("True", "true", TIMEOUT).await;
    agent.kill();
    site.host.remove("/dev/davinci3");
    let _agent = site.start();
    let failed = site.shows("False", "false", SOON).await;
    assert!(failed.message.unwrap().contains("davinci3"));
}

#[tokio::test]
async fn an_agent_that_starts_without_the_host_leaves_no_old_status() {
    let site = Site::new("hostless", CONFIG).await;
    let agent = site.start();
    site.shows("True", "true", TIMEOUT).await;
    agent.kill();
    let _agent = site.start_with(&["--host-root=/nonexistent"]);
    let unknown = site.shows("Unknown", "unknown", SOON).await;
    assert_eq!(unknown.reason.as_deref(), Some("CheckFailed"));
    assert!(unknown.message.unwrap().contains("/nonexistent"));
}

#[tokio::test]
async fn a_changed_configuration_is_used_without_a_restart() {
    let site = Site::new("reload", CONFIG).await;
    let agent = site.start_with(&["--reload-interval=100ms"]);
    site.shows("True", "true", TIMEOUT).await;
    site.host.file("/agent.yaml", format!("{CONFIG}paths: [/etc/wanted]\n"));
    let failed = site.shows("False", "false", SOON).await;
    assert!(failed.message.unwrap().contains("/etc/wanted"));

    // An invalid file leaves the last good configuration in use.
    site.host.file("/agent.yaml", format!("{CONFIG}paths: []\npath: []\n"));
    eventually("the failure is counted", TIMEOUT, || async {
        let (_, metrics) = agent.get("/metrics");
        let is_counted = metrics.contains("swansong_agent_config_reload_failures_total 1");
        if is_counted { Ok(()) } else { Err(metrics) }
    })
    .await
    .unwrap();
    site.shows("False", "false", SOON).await;
    site.host.file("/agent.yaml", CONFIG);
    site.shows("True", "true", TIMEOUT).await;
    let (is_healthy, problem) = agent.get("/healthz");
    assert!(is_healthy, "{problem}");
}

#[tokio::test]
async fn an_agent_without_its_node_is_not_ready() {
    let site = Site::new("gone", CONFIG).await;
    let agent = site.start();
    site.shows("True", "true", TIMEOUT).await;
    agent.ready().await;
    site.nodes().delete(&site.node, &kube::api::DeleteParams::default()).await.unwrap();
    eventually("the agent isn't ready", TIMEOUT, || async {
        let (is_ready, _) = agent.get("/readyz");
        if is_ready { Err("it is".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();
    assert!(agent.get("/livez").0);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": site.node}});
    crate::support::create(&site.client, "", node).await.unwrap();
    agent.ready().await;
    assert_eq!(condition(&site.get().await).unwrap().status, "True");
}
