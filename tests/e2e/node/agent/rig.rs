//! A separate cluster with agents by the manifests, since an agent reports on a whole node.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use swansong_demo::{agents, install};
use swansong_testcluster::{Cluster, Tier, eventually};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

pub(crate) use swansong_demo::agents::NAMESPACE;
pub(crate) const LABEL: &str = "swansong.dev/dump-ready";

/// The promised latency with default settings.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Timeout for starts and stops of Pods.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);

/// The cluster, for one test at a time; `None` if this machine can't run one.
pub(crate) async fn alone() -> Option<(MutexGuard<'static, ()>, &'static Cluster)> {
    static TURN: Mutex<()> = Mutex::const_new(());
    static READY: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let turn = TURN.lock().await;
    let cluster = READY
        .get_or_init(|| async {
            let cluster = Cluster::start_if_possible(Tier::Node).await.unwrap()?;
            let folder = tempfile::tempdir().unwrap();
            let swansong = Path::new(env!("CARGO_BIN_EXE_swansong"));
            install::load_image(&cluster, swansong, folder.path()).await.unwrap();
            // As the device plugin does.
            label(&cluster, json!({"accelerator": "huawei-Ascend910"})).await;
            Some(cluster)
        })
        .await;
    Some((turn, cluster.as_ref()?))
}

async fn label(cluster: &Cluster, labels: Value) {
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    nodes.patch(cluster.node_name().unwrap(), &PatchParams::default(), &patch).await.unwrap();
}

/// Agents by an overlay of the manifests.
pub(crate) struct Agents {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: Client,
}

impl Agents {
    /// Applies an overlay with `host` as the host's file system, and waits until its Pod is ready.
    pub(crate) async fn start(cluster: &'static Cluster, overlay: &str, host: &Path, config: &str) -> Self {
        agents::install(cluster, overlay, host, config).await.unwrap();
        Self { cluster, client: cluster.client().await.unwrap() }
    }

    pub(crate) async fn pod(&self) -> Result<Pod, String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let list = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let mut living = list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        living.next().ok_or_else(|| "there is no agent".to_owned())
    }

    /// The restarts of its container, and whether it is ready.
    pub(crate) async fn restarts(&self) -> Result<(i32, bool), String> {
        let status = self.pod().await?.status.unwrap_or_default();
        let container = status.container_statuses.unwrap_or_default().pop().ok_or("no container yet")?;
        Ok((container.restart_count, container.ready))
    }

    /// Kills the agent's process.
    pub(crate) async fn kill(&self) {
        let uid = self.pod().await.unwrap().uid().unwrap();
        let agent = eventually("the agent's process", TIMEOUT, || async {
            let mut processes = procfs::process::all_processes().map_err(|error| error.to_string())?;
            let is_it = |process: &procfs::process::Process| {
                let arguments = process.cmdline().unwrap_or_default();
                let of_pod = process
                    .cgroups()
                    .is_ok_and(|groups| groups.0.iter().any(|group| group.pathname.contains(&uid)));
                of_pod && arguments.get(1).is_some_and(|argument| argument == "agent")
            };
            processes
                .find_map(|process| process.ok().filter(is_it))
                .map(|process| process.pid)
                .ok_or_else(|| "none".to_owned())
        });
        kill(Pid::from_raw(agent.await.unwrap()), Signal::SIGKILL).unwrap();
    }

    /// Waits for condition and label, with `needle` in the condition's message.
    pub(crate) async fn expect_status(&self, status: &str, needle: &str, within: Duration) {
        let start = std::time::Instant::now();
        let what = format!("DumpReady is {status} ({needle})");
        let result = eventually(&what, within, || async {
            let shown = self.node_status().await?;
            let (condition, label) = (&shown["condition"], &shown["label"]);
            let message = condition["message"].as_str().unwrap_or_default();
            let right =
                condition["status"] == status && *label == status.to_lowercase() && message.contains(needle);
            right.then_some(()).ok_or_else(|| shown.to_string())
        });
        if let Err(error) = result.await {
            let logs = self
                .cluster
                .kubectl(&["--namespace", NAMESPACE, "logs", "daemonset/swansong-agent", "--tail=30"])
                .await;
            panic!("{error}\n{}", logs.unwrap_or_default());
        }
        eprintln!("{what}: after {:.1} s", start.elapsed().as_secs_f64());
    }

    /// Condition and label of the Node.
    pub(crate) async fn node_status(&self) -> Result<Value, String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(self.cluster.node_name().unwrap()).await.map_err(|error| error.to_string())?;
        Ok(node_status(&node))
    }

    /// The end of the agent's log.
    pub(crate) async fn logs(&self) -> String {
        agents::logs(self.cluster).await
    }

    pub(crate) async fn status(&self) -> Result<Value, String> {
        let address = self.pod().await?.status.and_then(|status| status.pod_ip).ok_or("no address yet")?;
        let output = Command::new("curl")
            .args(["--silent", "--fail", "--max-time", "5"])
            .arg(format!("http://{address}:8081/status"))
            .output();
        let output = output.map_err(|error| error.to_string())?;
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {}", output.status))
    }

    /// Removes the agents and what they wrote on the Node.
    pub(crate) async fn stop(self) {
        self.cluster
            .kubectl(&["--namespace", NAMESPACE, "delete", "daemonset/swansong-agent", "--wait"])
            .await
            .unwrap();
        label(self.cluster, json!({LABEL: null})).await;
    }
}

/// Label and condition of a node.
pub(crate) fn node_status(node: &Node) -> Value {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let condition = conditions.into_iter().find(|condition| condition.type_ == "DumpReady");
    json!({"label": node.labels().get(LABEL), "condition": condition})
}
