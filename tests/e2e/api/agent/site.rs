//! A Node, a simulated host, and an agent of it.

use std::process::Child;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Client;
use kube::api::Api;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use swansong_agent::checks::Family;
use swansong_fixtures::host::Host;
use swansong_testcluster::{AuditEvent, Cluster, eventually};

use super::TIMEOUT;
use crate::support::{create, http_get, read_lines, rig, swansong, tied};

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
        self.start_with(&[])
    }

    /// Starts an agent with further flags, which replace those before.
    pub(super) fn start_with(&self, flags: &[&str]) -> Agent {
        let mut command =
            swansong(["agent", "--health-listen", "127.0.0.1:0", "--log-format", "json", "--node"]);
        command
            .arg(&self.node)
            .arg("--host-root")
            .arg(self.host.path("/"))
            .arg("--config")
            .arg(self.host.path("/agent.yaml"))
            .args(flags);
        command.env("KUBECONFIG", self.cluster.kubeconfig());
        Agent::start(&command)
    }

    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(super) async fn get(&self) -> Node {
        self.nodes().get(&self.node).await.unwrap()
    }

    /// Waits for condition and label, at most `within`.
    pub(super) async fn shows(&self, status: &str, label: &str, within: Duration) -> NodeCondition {
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
    pub(super) fn writes(&self) -> Vec<AuditEvent> {
        self.requests()
            .into_iter()
            .filter(|event| matches!(event.verb.as_str(), "patch" | "update" | "create"))
            .collect()
    }

    pub(super) fn requests(&self) -> Vec<AuditEvent> {
        let ours = |event: &AuditEvent| {
            event.user_agent.starts_with("swansong-agent/")
                && event.request_uri.contains(&self.node)
                && event.stage == "ResponseComplete"
        };
        self.cluster.audit_log().unwrap().into_iter().filter(ours).collect()
    }
}

pub(super) fn condition(node: &Node) -> Option<NodeCondition> {
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
    log: Arc<Mutex<Vec<String>>>,
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
        Self { shell, pid: Pid::from_raw(pid.expect("logged")), health: health.expect("logged"), log }
    }

    pub(crate) fn health_address(&self) -> &str {
        &self.health
    }

    /// The lines of its log with this message so far.
    pub(crate) fn logged(&self, message: &str) -> Vec<Value> {
        let lines = self.log.lock().unwrap();
        let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    pub(crate) fn get(&self, path: &str) -> (bool, String) {
        let answer = http_get(&self.health, path);
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
        (answer.starts_with("HTTP/1.1 200"), body)
    }

    pub(crate) async fn ready(&self) {
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
