//! The cluster, Swansong in it, and what can be done to it there.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use swansong_demo::install;
use swansong_testcluster::{Cluster, Tier, eventually, shared_if_possible};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Where Swansong is installed.
pub(crate) const NAMESPACE: &str = "swansong-system";

/// The Secret of its certificate.
pub(crate) const SECRET: &str = "swansong-webhook-tls";

/// The longest that any one thing is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Seconds for what takes half an hour.
const QUICK: [&str; 3] = ["--ca-settle-time=2s", "--replica-expiry=4s", "--check-interval=300ms"];

/// Scenarios take turns, those with a cluster of their own too: what one measures is not to be another's load.
static TURN: Mutex<()> = Mutex::const_new(());

/// A cluster in the hands of one scenario.
pub(crate) struct Site<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) client: Client,
    _turn: MutexGuard<'static, ()>,
}

/// The shared cluster when it is this scenario's turn, or nothing where this machine can't have one.
pub(crate) async fn site() -> Option<Site<'static>> {
    static LOADED: OnceCell<()> = OnceCell::const_new();
    let turn = TURN.lock().await;
    let cluster = shared_if_possible(Tier::Node).await.unwrap()?;
    LOADED.get_or_init(|| load_image(cluster)).await;
    Some(Site { cluster, client: cluster.client().await.unwrap(), _turn: turn })
}

async fn load_image(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let swansong = Path::new(env!("CARGO_BIN_EXE_swansong"));
    install::load_image(cluster, swansong, folder.path()).await.unwrap();
}

impl<'c> Site<'c> {
    /// A cluster that is this scenario's alone.
    pub(crate) async fn alone(cluster: &'c Cluster) -> Self {
        let turn = TURN.lock().await;
        load_image(cluster).await;
        Self { cluster, client: cluster.client().await.unwrap(), _turn: turn }
    }

    /// Three replicas of an overlay, which change their authority within seconds when told to.
    pub(crate) async fn install(&self, overlay: &str) -> TempDir {
        let manifests = manifests(overlay);
        install::apply(self.cluster, manifests.path()).await.unwrap();
        install::ready(self.cluster).await.unwrap();
        self.settled().await;
        manifests
    }

    /// kubectl in Swansong's namespace.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(&[&["--namespace", NAMESPACE], arguments].concat()).await.unwrap()
    }

    /// An object of Swansong's as JSON.
    pub(crate) async fn get(&self, resource: &str) -> Option<Value> {
        let text = self.kubectl(&["get", resource, "--ignore-not-found", "--output=json"]).await;
        (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    /// The Secret's key, in base64; empty when it isn't there.
    pub(crate) async fn secret(&self, key: &str) -> String {
        let secret = self.get(&format!("secret/{SECRET}")).await.unwrap_or_default();
        secret["data"][key].as_str().unwrap_or_default().to_owned()
    }

    /// Replicas that aren't on their way out.
    pub(crate) async fn replicas(&self) -> Vec<Pod> {
        let pods = self.pods().await;
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let ours = ListParams::default().labels("app.kubernetes.io/component=webhook");
        pods.list(&ours).await.unwrap().items
    }

    /// Waits until all replicas are ready and none is on its way out any more.
    pub(crate) async fn settled(&self) {
        self.kubectl(&["rollout", "status", "deployment/swansong-webhook", "--timeout=120s"]).await;
        eventually("all replicas ready and none leaving", PATIENCE, || async {
            let pods = self.pods().await;
            let calm = pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod));
            if calm { Ok(()) } else { Err(format!("{} pods, some not ready or leaving", pods.len())) }
        })
        .await
        .unwrap();
    }

    /// Has the Deployment replace all its Pods, as an upgrade does.
    pub(crate) async fn roll(&self) {
        self.kubectl(&["rollout", "restart", "deployment/swansong-webhook"]).await;
        self.settled().await;
    }

    pub(crate) async fn scale(&self, replicas: usize) {
        let replicas = format!("--replicas={replicas}");
        self.kubectl(&["scale", "deployment/swansong-webhook", &replicas]).await;
        self.settled().await;
    }

    /// Has the authority changed for another by hand, and waits until the old one is gone.
    pub(crate) async fn rotate_authority(&self) {
        let before = self.secret("ca.crt").await;
        self.ask_for("ca").await;
        self.only_authority(&before).await;
    }

    /// Has the leaf renewed by hand.
    pub(crate) async fn rotate_leaf(&self) {
        let before = self.secret("tls.crt").await;
        self.ask_for("leaf").await;
        eventually("a new leaf", PATIENCE, || async {
            let after = self.secret("tls.crt").await;
            if after.is_empty() || after == before { Err("not yet") } else { Ok(()) }
        })
        .await
        .unwrap();
    }

    async fn ask_for(&self, what: &str) {
        let annotation = format!("swansong.dev/rotate={what}");
        self.kubectl(&["annotate", "--overwrite", &format!("secret/{SECRET}"), &annotation]).await;
    }

    /// Waits until Secret and every `caBundle` hold one authority, and another than this one; returns it.
    pub(crate) async fn only_authority(&self, other_than: &str) -> String {
        eventually("Secret and caBundle to agree on one authority", PATIENCE, || async {
            let secret = self.get(&format!("secret/{SECRET}")).await.unwrap_or_default();
            let configuration = self.get("mutatingwebhookconfiguration/swansong").await.unwrap_or_default();
            let authority = secret["data"]["ca.crt"].as_str().unwrap_or_default();
            let changing =
                ["next-ca.crt", "previous-ca.crt"].iter().any(|key| !secret["data"][*key].is_null());
            let bundles: Vec<&Value> = bundles(&configuration).collect();
            let one = !bundles.is_empty() && bundles.iter().all(|bundle| **bundle == *authority);
            if !authority.is_empty() && authority != other_than && !changing && one {
                Ok(authority.to_owned())
            } else {
                Err(format!("changing: {changing}, one caBundle: {one}"))
            }
        })
        .await
        .unwrap()
    }

    /// Waits until the kubelet has started a killed replica again and it is ready.
    pub(crate) async fn restarted(&self, replica: &Pod) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let (name, before) = (replica.name_any(), restarts(replica));
        eventually("the replica is back", PATIENCE, || async {
            let pod = pods.get(&name).await.map_err(|error| error.to_string())?;
            let back = restarts(&pod) > before && is_ready(&pod);
            if back { Ok(()) } else { Err(format!("{} restarts", restarts(&pod))) }
        })
        .await
        .unwrap();
    }

    /// Creates a Pod and returns it as it was stored.
    pub(crate) async fn create(&self, namespace: &str, pod: &Pod) -> kube::Result<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        pods.create(&PostParams::default(), pod).await
    }
}

/// The `caBundle` of each webhook in a configuration.
pub(crate) fn bundles(configuration: &Value) -> impl Iterator<Item = &Value> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks.map(|webhook| &webhook["clientConfig"]["caBundle"])
}

/// An overlay with our image, three replicas, and quick changes of the authority.
pub(crate) fn manifests(overlay: &str) -> TempDir {
    let folder = install::kustomization(overlay).unwrap();
    let mut operations = vec![json!({ "op": "replace", "path": "/spec/replicas", "value": 3 })];
    let argument =
        |value| json!({ "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": value });
    operations.extend(QUICK.map(argument));
    let patch = json!(operations).to_string();
    fs::write(folder.path().join("quick.json"), patch).unwrap();
    let mut file = OpenOptions::new().append(true).open(folder.path().join("kustomization.yaml")).unwrap();
    writeln!(file, "patches: [{{path: quick.json, target: {{kind: Deployment}}}}]").unwrap();
    folder
}

/// A Pod that asks for a dump, and that no scheduler takes care of, so that it never runs.
pub(crate) fn asking_pod(name: &str) -> Pod {
    let mut pod = plain_pod(name);
    pod.annotations_mut().insert("recover-strategy".to_owned(), "dump".to_owned());
    pod
}

/// A Pod that asks for nothing.
pub(crate) fn plain_pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": { "name": name },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "ascend", "image": install::IMAGE }] },
    });
    serde_json::from_value(pod).unwrap()
}

/// Whether Swansong has changed a Pod.
pub(crate) fn is_injected(pod: &Pod) -> bool {
    let env =
        pod.spec.iter().flat_map(|spec| &spec.containers).filter_map(|container| container.env.as_ref());
    pod.annotations().contains_key("swansong.dev/injected")
        && env.flatten().any(|variable| variable.name == "LD_PRELOAD")
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten();
    statuses.into_iter().map(|status| status.restart_count).sum()
}

/// Stops a replica's process, so that it neither answers nor refuses, and waits until each of its threads stands still.
pub(crate) async fn freeze(replica: &Pod) {
    signal(replica, Signal::SIGSTOP);
    let process = process_of(&replica.uid().unwrap()).expect("the replica's process");
    eventually("each thread stands still", PATIENCE, || async {
        let tasks = procfs::process::Process::new(process.as_raw()).and_then(|process| process.tasks());
        for task in tasks.map_err(|error| error.to_string())? {
            let state = task.and_then(|task| task.stat()).map_err(|error| error.to_string())?.state;
            if state != 'T' {
                return Err(format!("one is {state}"));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Sends a signal to a replica's process.
pub(crate) fn signal(replica: &Pod, signal: Signal) {
    let process = process_of(&replica.uid().unwrap()).expect("the replica's process");
    kill(process, signal).unwrap();
}

/// The process of Swansong in a Pod, found by the Pod's control group: no process of another cluster can be meant.
fn process_of(uid: &str) -> Option<Pid> {
    let of_pod = |process: &procfs::process::Process| {
        let in_pod = process
            .cgroups()
            .is_ok_and(|groups| groups.into_iter().any(|group| group.pathname.contains(uid)));
        in_pod
            && process.cmdline().is_ok_and(|line| line.first().is_some_and(|program| program == "/swansong"))
    };
    let process = procfs::process::all_processes().ok()?.filter_map(Result::ok).find(of_pod)?;
    Some(Pid::from_raw(process.pid()))
}
