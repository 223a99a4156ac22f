//! The running agent against a real API server: latency, restarts, and concurrent writers of the same Node.

mod restarts;
mod site;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use swansong_fixtures::host::DRIVER;
use swansong_testcluster::eventually;

use self::site::condition;
pub(crate) use self::site::{Agent, Site};

/// The promised latency.
const SOON: Duration = Duration::from_secs(10);

/// Timeout of a condition on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

const CONFIG: &str = "npus: 8\ndriver: {trust: anyone}\nclusterd: {dial: false}\nports: []\n";

#[tokio::test]
async fn status_changes_are_written_within_seconds() {
    let site = Site::new("truth", CONFIG).await;
    let agent = site.start();
    site.shows("True", "true", SOON).await;
    agent.ready().await;

    site.host.remove("/dev/davinci3");
    let failed = site.shows("False", "false", SOON).await;
    assert_eq!(failed.reason.as_deref(), Some("DevicesMissing"), "{failed:?}");
    site.host.device("/dev/davinci3");
    let healthy = site.shows("True", "true", SOON).await;
    assert!(healthy.last_transition_time > failed.last_transition_time);

    // Container runtimes create a folder when they mount a missing path.
    site.host.folder(&format!("{DRIVER}/lib64/driver/libdcmi.so"));
    let failed = site.shows("False", "false", SOON).await;
    assert!(
        failed.message.as_deref().is_some_and(|text| text.contains("driver-libs (NotAFile)")),
        "{failed:?}"
    );
    site.host.file(&format!("{DRIVER}/lib64/driver/libdcmi.so"), swansong_fixtures::host::Elf::X86.bytes());
    site.shows("True", "true", SOON).await;

    // The driver's folder is replaced and restored.
    std::fs::rename(site.host.path(DRIVER), site.host.path("/usr/local/Ascend/old")).unwrap();
    site.host.folder(DRIVER);
    site.shows("False", "false", SOON).await;
    site.host.remove(DRIVER);
    std::fs::rename(site.host.path("/usr/local/Ascend/old"), site.host.path(DRIVER)).unwrap();
    site.shows("True", "true", SOON).await;

    let (ok, status) = agent.get("/status");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert!(ok);
    assert_eq!(
        (&status["desired"], &status["observed"]["condition"]["status"]),
        (&json!("True"), &json!("True"))
    );
    assert_eq!(status["bootId"], "first-boot");
    assert!(status["tasks"].as_array().unwrap().iter().all(|task| task["state"] == "running"), "{status:#}");
    assert_eq!(agent.get("/healthz"), (true, "ok\n".to_owned()));
    assert!(agent.get("/metrics").1.contains("swansong_agent_ready{status=\"True\"} 1"));

    let described = eventually("the Events are described", TIMEOUT, || async {
        let described =
            site.cluster.kubectl(&["describe", "node", &site.node]).await.map_err(|e| e.to_string())?;
        let expected = ["DumpNotReady", "DumpReady ", "swansong-agent", "recovered: driver-version"];
        if expected.iter().all(|word| described.contains(word)) { Ok(described) } else { Err(described) }
    })
    .await
    .unwrap();
    assert!(described.contains("all 9 checks pass"), "{described}");
    let listed =
        site.cluster.kubectl(&["get", "nodes", &site.node, "-L", "swansong.dev/dump-ready"]).await.unwrap();
    assert!(listed.lines().nth(1).is_some_and(|line| line.ends_with("true")), "{listed}");

    // A recovery lists the same checks as the failure.
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    let list = events
        .list(&ListParams::default().fields(&format!("involvedObject.name={}", site.node)))
        .await
        .unwrap();
    for event in &list {
        assert_eq!(event.involved_object.api_version.as_deref(), Some("v1"));
        assert_eq!(event.involved_object.uid.as_deref(), Some(site.node.as_str()));
    }
    let of = |reason: &str| {
        let event = list.iter().find(|event| event.reason.as_deref() == Some(reason)).expect(reason);
        (event.count, event.metadata.annotations.clone().unwrap_or_default()["swansong.dev/checks"].clone())
    };
    let (failed, recovered) = (of("DumpNotReady"), of("DumpReady"));
    assert_eq!(failed.0, Some(3));
    assert_eq!(failed.1, recovered.1, "the last failure has recovered");
}

#[tokio::test]
async fn a_label_that_another_client_changed_is_corrected_and_logged() {
    let site = Site::new("label", CONFIG).await;
    let agent = site.start();
    site.shows("True", "true", TIMEOUT).await;
    let corrected = "updated the Node, which another client had changed";
    assert_eq!(agent.logged(corrected), Vec::<Value>::new());

    let foreign = Patch::Merge(json!({"metadata": {"labels": {"swansong.dev/dump-ready": "false"}}}));
    site.nodes().patch(&site.node, &PatchParams::default(), &foreign).await.unwrap();
    eventually("the correction is logged", TIMEOUT, || async {
        let lines = agent.logged(corrected);
        if lines.is_empty() { Err("nothing is logged") } else { Ok(()) }
    })
    .await
    .unwrap();
    site.shows("True", "true", TIMEOUT).await;
    assert_eq!(agent.logged(corrected)[0]["level"], "WARN");
}

/// Another client writes conditions, labels and taints in a loop, based on reads that may be stale.
#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let site = Site::new("writers", &format!("{CONFIG}readiness: {{taint: true}}\n")).await;
    let agent = site.start();
    site.shows("True", "true", TIMEOUT).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (nodes, name, stopped) = (site.nodes(), site.node.clone(), Arc::clone(&stop));
    let writer = tokio::spawn(async move {
        let mut round = 0_u32;
        while !stopped.load(Relaxed) {
            round += 1;
            let status = json!({"status": {"conditions": [{"type": "Other", "status": "True", "reason": "R", "message": format!("{round}")}]}});
            nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
            // Taints by a whole update with the version that was read, as the kubelet's controllers do.
            let mut node = nodes.get(&name).await.unwrap();
            node.metadata.labels.get_or_insert_default().insert("other".to_owned(), round.to_string());
            let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
            taints.retain(|taint| taint.key != "other");
            if round.is_multiple_of(2) {
                let taint = json!({"key": "other", "value": round.to_string(), "effect": "PreferNoSchedule"});
                taints.push(serde_json::from_value(taint).unwrap());
            }
            match nodes.replace(&name, &PostParams::default(), &node).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        round
    });
    for _ in 0..3 {
        site.host.remove("/dev/hisi_hdc");
        site.shows("False", "false", TIMEOUT).await;
        tainted(&site, true).await;
        site.host.device("/dev/hisi_hdc");
        site.shows("True", "true", TIMEOUT).await;
        tainted(&site, false).await;
    }
    site.host.remove("/dev/hisi_hdc");
    tainted(&site, true).await;
    stop.store(true, Relaxed);
    let rounds = writer.await.unwrap();
    let node = site.get().await;
    let other = node.status.as_ref().and_then(|status| status.conditions.as_ref()).unwrap();
    let other = other.iter().find(|condition| condition.type_ == "Other").expect("the other condition");
    assert_eq!(other.message.as_deref(), Some(rounds.to_string().as_str()));
    assert!(node.metadata.labels.as_ref().unwrap().contains_key("other"));
    assert_eq!(condition(&node).unwrap().status, "False");
    drop(agent);
}

async fn tainted(site: &Site, wanted: bool) {
    eventually(&format!("the taint is {wanted}"), TIMEOUT, || async {
        let taints = site.get().await.spec.unwrap_or_default().taints.unwrap_or_default();
        let ours =
            taints.iter().any(|taint| taint.key == "swansong.dev/not-ready" && taint.effect == "NoSchedule");
        if ours == wanted { Ok(()) } else { Err(format!("{taints:?}")) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_idle_agent_writes_once() {
    let site = Site::new("idle", CONFIG).await;
    let agent = site.start();
    agent.ready().await;
    eventually("the Event is written", TIMEOUT, || async {
        let is_logged = site
            .requests()
            .iter()
            .any(|event| event.object_ref.as_ref().is_some_and(|o| o.resource == "events"));
        // The request URI of a creation doesn't contain its name.
        let list: Api<Event> = Api::namespaced(site.client.clone(), "default");
        let fields = format!("involvedObject.name={}", site.node);
        let events = list.list(&ListParams::default().fields(&fields)).await.map_err(|e| e.to_string())?;
        if is_logged || !events.items.is_empty() { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await
    .unwrap();
    // Several rounds of checks, by their metric.
    for _ in 0..4 {
        let before = last_success(&agent);
        eventually("another round of checks", TIMEOUT, || async {
            if last_success(&agent) > before { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await
        .unwrap();
    }
    let writes: Vec<(String, String)> = site
        .writes()
        .into_iter()
        .map(|event| (event.verb, event.request_uri.trim_end_matches('?').to_owned()))
        .collect();
    assert_eq!(writes, [("patch".to_owned(), format!("/api/v1/nodes/{}/status", site.node))]);
    let lists = site.requests().iter().filter(|event| event.verb == "list").count();
    assert_eq!(lists, 2, "the node and its pods, once each");
}

/// The time of the last round of checks.
fn last_success(agent: &Agent) -> f64 {
    let metrics = agent.get("/metrics").1;
    let series = "swansong_agent_task_last_success_timestamp_seconds{task=\"check\"} ";
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)).expect("the metric");
    value.parse().expect("a number")
}
