//! The running agent against a real API server: latency, restarts, and concurrent writers of the same Node.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use swansong_agent::checks::Family;
use swansong_testcluster::{AuditEvent, Cluster, eventually};

use crate::support::{create, http_get, read_lines, rig, swansong, tied};
use swansong_fixtures::host::{DRIVER, Host};

/// The promised latency.
const SOON: Duration = Duration::from_secs(10);

/// Timeout of a condition on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);

const CONFIG: &str = "npus: 8\ndriver: {trust: anyone}\nclusterd: {dial: false}\nports: []\n";

/// A Node, a simulated host, and an agent.
pub(crate) struct Site {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) host: Host,
}

impl Site {
    pub(crate) async fn new(name: &str, config: &str) -> Self {
        let cluster = rig().await.cluster;
        let client = cluster.client().await.unwrap();
        let node = format!("agent-{name}");
        create(&client, "", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}))
            .await
            .unwrap();
        let host = Host::healthy(Family::A2);
        host.file("/agent.yaml", config);
        host.file("/proc/uptime", "1000.00 1000.00\n");
        host.file("/proc/sys/kernel/random/boot_id", "first-boot\n");
        Self { cluster, client, node, host }
    }

    pub(crate) fn start(&self) -> Agent {
        let mut command =
            swansong(["agent", "--health-listen", "127.0.0.1:0", "--log-format", "json", "--node"]);
        command
            .arg(&self.node)
            .arg("--host-root")
            .arg(self.host.path("/"))
            .arg("--config")
            .arg(self.host.path("/agent.yaml"));
        command.env("KUBECONFIG", self.cluster.kubeconfig());
        Agent::start(&command)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn get(&self) -> Node {
        self.nodes().get(&self.node).await.unwrap()
    }

    /// Waits for condition and label, at most `within`.
    async fn shows(&self, status: &str, label: &str, within: Duration) -> NodeCondition {
        let start = Instant::now();
        let condition = eventually(&format!("{} shows {status}", self.node), TIMEOUT, || async {
            let node = self.get().await;
            let observed_label = node
                .metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get("swansong.dev/dump-ready"))
                .cloned();
            match condition(&node) {
                Some(found) if found.status == status => {
                    // One request writes both.
                    assert_eq!(observed_label.as_deref(), Some(label));
                    Ok(found)
                }
                found => Err(format!("{found:?} {observed_label:?}")),
            }
        })
        .await
        .unwrap();
        assert!(start.elapsed() < within, "{status} after {:?}", start.elapsed());
        condition
    }

    /// The agent's writes to this Node by the audit log.
    fn writes(&self) -> Vec<AuditEvent> {
        self.requests()
            .into_iter()
            .filter(|event| matches!(event.verb.as_str(), "patch" | "update" | "create"))
            .collect()
    }

    fn requests(&self) -> Vec<AuditEvent> {
        let ours = |event: &AuditEvent| {
            event.user_agent.starts_with("swansong-agent/")
                && event.request_uri.contains(&self.node)
                && event.stage == "ResponseComplete"
        };
        self.cluster.audit_log().unwrap().into_iter().filter(ours).collect()
    }
}

fn condition(node: &Node) -> Option<NodeCondition> {
    node.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == "DumpReady")
        .cloned()
}

pub(crate) struct Agent {
    shell: Child,
    pid: Pid,
    health: String,
}

impl Agent {
    fn start(command: &std::process::Command) -> Self {
        let mut shell = tied(command).spawn().expect("sh");
        let (sender, lines) = mpsc::channel();
        let log = Arc::new(Mutex::new(Vec::new()));
        read_lines(shell.stdout.take().unwrap(), sender.clone(), Arc::clone(&log));
        read_lines(shell.stderr.take().unwrap(), sender, Arc::clone(&log));
        let (mut pid, mut health) = (None, None);
        while pid.is_none() || health.is_none() {
            let line = lines.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("no start: {:?}", log.lock()));
            pid = pid.or_else(|| line.parse().ok());
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            health = health.or_else(|| entry["health_address"].as_str().map(str::to_owned));
        }
        Self { shell, pid: Pid::from_raw(pid.expect("logged")), health: health.expect("logged") }
    }

    pub(crate) fn health_address(&self) -> &str {
        &self.health
    }

    pub(crate) fn get(&self, path: &str) -> (bool, String) {
        let answer = http_get(&self.health, path);
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (answer.starts_with("HTTP/1.1 200"), body)
    }

    async fn ready(&self) {
        eventually("the agent is ready", TIMEOUT, || async {
            let (ok, body) = self.get("/readyz");
            if ok { Ok(()) } else { Err(body) }
        })
        .await
        .unwrap();
    }

    pub(crate) fn kill(self) {
        kill(self.pid, Signal::SIGKILL).unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

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
async fn restarts_of_the_agent_do_not_change_the_status() {
    let site = Site::new("restart", CONFIG).await;
    for (broken, status, label) in [(false, "True", "true"), (true, "False", "false")] {
        if broken {
            site.host.remove("/dev/davinci_manager");
        }
        let agent = site.start();
        let condition = site.shows(status, label, TIMEOUT).await;
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
                seen.push(super::agent::condition(&node).map(|condition| condition.status));
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
        let after = super::agent::condition(&site.get().await).unwrap();
        assert_eq!(after.last_transition_time, condition.last_transition_time);
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
