//! A cluster with Swansong, and operations on both.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};
use swansong_demo::install;
use swansong_testcluster::{Cluster, Tier, eventually, shared_if_possible};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

pub(crate) const NAMESPACE: &str = "swansong-system";

/// Secret of its certificate.
pub(crate) const SECRET: &str = "swansong-webhook-tls";

/// Timeout of each wait.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

/// DNS name of the Service.
pub(crate) const SERVICE: &str = "swansong-webhook.swansong-system.svc";

/// Rotates within seconds instead of minutes. API servers on a busy machine read a new `caBundle` within the settle time.
const QUICK: [&str; 2] = ["--ca-settle-time=10s", "--check-interval=300ms"];

const TRUSTED_UNTIL: &str = "swansong.dev/trusted-until";

/// Only one scenario runs at a time, also with separate clusters, since each measures the machine.
static TURN: Mutex<()> = Mutex::const_new(());

/// A cluster that one scenario uses.
pub(crate) struct Site<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) client: Client,
    _turn: MutexGuard<'static, ()>,
}

/// The shared cluster, or `None` if this machine can't run one.
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
    /// A cluster of one scenario.
    pub(crate) async fn alone(cluster: &'c Cluster) -> Self {
        let turn = TURN.lock().await;
        load_image(cluster).await;
        Self { cluster, client: cluster.client().await.unwrap(), _turn: turn }
    }

    /// Installs three replicas of an overlay.
    pub(crate) async fn install(&self, overlay: &str) -> TempDir {
        let manifests = manifests(overlay);
        install::apply(self.cluster, manifests.path()).await.unwrap();
        install::ready(self.cluster).await.unwrap();
        self.settled().await;
        manifests
    }

    /// Runs kubectl in Swansong's namespace.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(&[&["--namespace", NAMESPACE], arguments].concat()).await.unwrap()
    }

    /// Reads an object in Swansong's namespace.
    pub(crate) async fn get(&self, resource: &str) -> Option<Value> {
        let text = self.kubectl(&["get", resource, "--ignore-not-found", "--output=json"]).await;
        (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap())
    }

    /// Reads a key of the Secret in base64; empty if it is missing.
    pub(crate) async fn secret(&self, key: &str) -> String {
        let secret = self.get(&format!("secret/{SECRET}")).await.unwrap_or_default();
        secret["data"][key].as_str().unwrap_or_default().to_owned()
    }

    /// Lists the replicas that aren't terminating.
    pub(crate) async fn replicas(&self) -> Vec<Pod> {
        let pods = self.pods().await;
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let ours = ListParams::default().labels("app.kubernetes.io/component=webhook");
        pods.list(&ours).await.unwrap().items
    }

    /// Waits until all replicas are ready and none is terminating.
    pub(crate) async fn settled(&self) {
        self.kubectl(&["rollout", "status", "deployment/swansong-webhook", "--timeout=120s"]).await;
        eventually("all replicas ready and none terminating", TIMEOUT, || async {
            let pods = self.pods().await;
            let settled = pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_none() && is_ready(pod));
            if settled { Ok(()) } else { Err(format!("{} pods, some not ready or terminating", pods.len())) }
        })
        .await
        .unwrap();
    }

    /// Restarts the Deployment, as an upgrade does.
    pub(crate) async fn roll(&self) {
        self.kubectl(&["rollout", "restart", "deployment/swansong-webhook"]).await;
        self.settled().await;
    }

    pub(crate) async fn scale(&self, replicas: usize) {
        let replicas = format!("--replicas={replicas}");
        self.kubectl(&["scale", "deployment/swansong-webhook", &replicas]).await;
        self.settled().await;
    }

    /// Requests a new CA, and waits until all replicas serve its leaf.
    pub(crate) async fn rotate_ca(&self) {
        let before = self.secret("ca.crt").await;
        self.request("ca").await;
        self.all_serve_other_ca(&before).await;
    }

    /// Requests a new leaf.
    pub(crate) async fn rotate_leaf(&self) {
        let before = self.secret("tls.crt").await;
        self.request("leaf").await;
        eventually("a new leaf", TIMEOUT, || async {
            let after = self.secret("tls.crt").await;
            if after.is_empty() || after == before { Err("not yet") } else { Ok(()) }
        })
        .await
        .unwrap();
    }

    async fn request(&self, what: &str) {
        let annotation = format!("swansong.dev/rotate={what}");
        self.kubectl(&["annotate", "--overwrite", &format!("secret/{SECRET}"), &annotation]).await;
    }

    /// Waits until the CA in use is another than this one and all replicas serve the leaf of the Secret.
    async fn all_serve_other_ca(&self, other_than: &str) {
        eventually("all replicas serve a leaf of another CA", TIMEOUT, || async {
            let secret = self.get(&format!("secret/{SECRET}")).await.unwrap_or_default();
            let pem = |key: &str| {
                let text = secret["data"][key].as_str().filter(|text| *text != other_than)?;
                STANDARD.decode(text).ok()
            };
            let (Some(ca), Some(leaf), None) = (pem("ca.crt"), pem("tls.crt"), pem("next-ca.crt")) else {
                return Err("the CA is not replaced yet".to_owned());
            };
            let leaf = CertificateDer::from_pem_slice(&leaf).map_err(|error| error.to_string())?;
            for replica in self.replicas().await {
                if served_leaf(&replica, &ca)? != leaf {
                    return Err(format!("{} serves another leaf", replica.name_any()));
                }
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Waits until all replicas serve a leaf of another CA than this one, and ends the trust in previous CAs. Returns
    /// the only CA in Secret and `caBundle`.
    pub(crate) async fn only_ca(&self, other_than: &str) -> String {
        self.all_serve_other_ca(other_than).await;
        // As the expiry of their last leaves does, months later.
        let secret = self.get(&format!("secret/{SECRET}")).await.unwrap_or_default();
        let until = secret["metadata"]["annotations"][TRUSTED_UNTIL].as_str().unwrap_or_default();
        let ids = until.split_ascii_whitespace().filter_map(|entry| entry.split_once('='));
        let past: Vec<String> = ids.map(|(id, _)| format!("{id}=2026-01-01T00:00:00Z")).collect();
        if !past.is_empty() {
            let annotation = format!("{TRUSTED_UNTIL}={}", past.join(" "));
            self.kubectl(&["annotate", "--overwrite", &format!("secret/{SECRET}"), &annotation]).await;
        }
        eventually("one CA in Secret and caBundle", TIMEOUT, || async {
            let ca = self.secret("ca.crt").await;
            let configuration = self.get("mutatingwebhookconfiguration/swansong").await.unwrap_or_default();
            let bundles: Vec<&Value> = bundles(&configuration).collect();
            let only = !ca.is_empty() && !bundles.is_empty() && bundles.iter().all(|bundle| **bundle == *ca);
            if only { Ok(ca) } else { Err("not yet".to_owned()) }
        })
        .await
        .unwrap()
    }

    /// Waits until a killed replica has restarted and is ready.
    pub(crate) async fn restarted(&self, replica: &Pod) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let (name, before) = (replica.name_any(), restarts(replica));
        eventually("the replica has restarted", TIMEOUT, || async {
            let pod = pods.get(&name).await.map_err(|error| error.to_string())?;
            let restarted = restarts(&pod) > before && is_ready(&pod);
            if restarted { Ok(()) } else { Err(format!("{} restarts", restarts(&pod))) }
        })
        .await
        .unwrap();
    }

    /// Creates a Pod and returns the stored one.
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

/// An overlay with the built image, three replicas and quick rotations.
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

/// A Pod that asks for a dump, with an unknown scheduler, so that it never runs.
pub(crate) fn asking_pod(name: &str) -> Pod {
    let mut pod = plain_pod(name);
    pod.annotations_mut().insert("recover-strategy".to_owned(), "dump".to_owned());
    pod
}

/// A Pod that asks for nothing.
pub(crate) fn plain_pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": { "name": name },
        "spec": { "schedulerName": "none", "containers": [{ "name": "ascend", "image": install::IMAGE }] },
    });
    serde_json::from_value(pod).unwrap()
}

/// Returns whether Swansong injected a Pod.
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

/// Stops a replica's process, so that it accepts connections and doesn't answer, and waits until all its threads stopped.
pub(crate) async fn freeze(replica: &Pod) {
    signal(replica, Signal::SIGSTOP);
    let process = process_of(&replica.uid().unwrap()).expect("the replica's process");
    eventually("each thread is stopped", TIMEOUT, || async {
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

/// Sends a signal to the process of a replica.
pub(crate) fn signal(replica: &Pod, signal: Signal) {
    let process = process_of(&replica.uid().unwrap()).expect("the replica's process");
    kill(process, signal).unwrap();
}

/// Finds the process of Swansong in a Pod by the Pod's control group, which is unique on this machine.
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

/// Returns the leaf that a replica serves to a client that trusts this CA.
pub(crate) fn served_leaf(replica: &Pod, ca: &[u8]) -> Result<CertificateDer<'static>, String> {
    let address = replica.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca).map_err(|error| error.to_string())?;
    roots.add(ca).map_err(|error| error.to_string())?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), SERVICE.try_into().unwrap()).unwrap();
    let mut stream = TcpStream::connect((address, 8443)).map_err(|error| error.to_string())?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    Ok(connection.peer_certificates().unwrap()[0].clone().into_owned())
}
