//! The self-managed certificate against the real API server: one authority however many replicas, `caBundle` set,
//! and reviews that really pass through the Service with it, also while the authority is changed.

use std::cell::Cell;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};
use swansong_testcluster::{Cluster, eventually};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{interval, timeout};

use crate::support::{
    Webhook, asking_pod, calls, configuration, create, grant_everything, rig, swansong, token_kubeconfig,
};

pub(crate) const SECRET: &str = "swansong-webhook-tls";

/// The longest that any one thing is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Few seconds for what takes half an hour.
pub(crate) const QUICK: [&str; 3] = ["--ca-settle-time=2s", "--replica-expiry=4s", "--check-interval=300ms"];

/// An address of this machine that the API server may dial for a Service; loopback is refused in endpoints.
fn own_address() -> IpAddr {
    // No packet is sent: connecting a datagram socket only chooses the route's source address.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

fn port(webhook: &Webhook) -> u16 {
    webhook.address.rsplit(':').next().unwrap().parse().unwrap()
}

/// An installation of its own: a namespace with Secret and Service, and a configuration for one other namespace.
pub(crate) struct Site {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: Client,
    /// Of the MutatingWebhookConfiguration.
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) watched: String,
}

impl Site {
    pub(crate) async fn new(name: &str) -> Self {
        let cluster = rig().await.cluster;
        let client = cluster.client().await.unwrap();
        let namespace = cluster.namespace(name).await.unwrap();
        let watched = cluster.namespace("watched").await.unwrap();
        let service = json!({"service": {"namespace": namespace, "name": "swansong-webhook", "path": "/mutate", "port": 443}});
        let only_there = json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": watched}},
            // The other webhooks of this cluster would inject as well.
            "failurePolicy": "Fail",
        });
        create(&client, "", configuration(cluster, name, &service, &only_there).await).await.unwrap();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "swansong-webhook"}, "spec": {"ports": [{"port": 443, "name": "https"}]}});
        create(&client, &namespace, service).await.unwrap();
        Self { cluster, client, name: name.to_owned(), namespace, watched }
    }

    /// Starts a replica. It may take a while until it has a certificate.
    fn start(&self, pod: &str, times: &[&str]) -> JoinHandle<Webhook> {
        self.start_as(self.cluster.kubeconfig(), pod, times)
    }

    /// Starts a replica that has the rights of a kubeconfig.
    pub(crate) fn start_as(&self, kubeconfig: &Path, pod: &str, arguments: &[&str]) -> JoinHandle<Webhook> {
        let mut command = swansong(["webhook", "--listen", "0.0.0.0:0", "--health-listen", "127.0.0.1:0"]);
        command
            .args(["--log-format", "json", "--namespace", &self.namespace])
            .args(["--webhook-configuration", &self.name])
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAME", pod);
        spawn_blocking(move || Webhook::start(&command))
    }

    async fn start_two(&self, times: &[&str]) -> [Webhook; 2] {
        let (first, second) = (self.start("pod-0", times), self.start("pod-1", times));
        [first.await.unwrap(), second.await.unwrap()]
    }

    async fn get(&self, resource: &str) -> Result<Value, String> {
        let text = self
            .cluster
            .kubectl(&["get", "-n", &self.namespace, resource, "-o", "json"])
            .await
            .map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    pub(crate) async fn secret(&self) -> Result<Value, String> {
        self.get(&format!("secret/{SECRET}")).await
    }

    /// Waits until the Secret has this key.
    pub(crate) async fn comes(&self, key: &str) {
        eventually(key, PATIENCE, || async {
            let secret = self.secret().await?;
            if secret["data"][key].is_string() { Ok(()) } else { Err("not there yet".to_owned()) }
        })
        .await
        .unwrap();
    }

    /// Waits until Secret and every `caBundle` hold one authority and no other, which isn't this one.
    pub(crate) async fn only_authority(&self, other_than: &str) -> String {
        eventually("caBundle and Secret to agree", PATIENCE, || async {
            let secret = self.secret().await?;
            let configuration = self.get(&format!("mutatingwebhookconfiguration/{}", self.name)).await?;
            let authority = secret["data"]["ca.crt"].as_str().unwrap_or_default().to_owned();
            let webhooks = configuration["webhooks"].as_array().cloned().unwrap_or_default();
            let changing =
                ["next-ca.crt", "previous-ca.crt"].iter().any(|key| !secret["data"][*key].is_null());
            let agree = !authority.is_empty()
                && authority != other_than
                && !changing
                && webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == *authority);
            if agree { Ok(authority) } else { Err("not yet".to_owned()) }
        })
        .await
        .unwrap()
    }

    /// Waits until a replica has a certificate, and puts it into the Service.
    pub(crate) async fn admit(&self, name: &str, replica: &Webhook) {
        eventually("the replica to be ready", PATIENCE, || async {
            let answer = replica.health("/readyz");
            if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
        })
        .await
        .unwrap();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "swansong-webhook"}},
            "endpoints": [{"addresses": [own_address()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port(replica), "protocol": "TCP"}],
        });
        create(&self.client, &self.namespace, slice).await.unwrap();
    }

    /// Waits until a Pod is created that went through a replica.
    pub(crate) async fn answers(&self, prefix: &str) {
        let attempt = Cell::new(0);
        eventually("the Service to answer", PATIENCE, || async {
            attempt.set(attempt.get() + 1);
            let name = format!("{prefix}-{}", attempt.get());
            let pod = asking_pod(&name, &json!([{"name": "ascend", "image": "x"}]));
            create(&self.client, &self.watched, pod).await.map_err(|error| error.to_string())?;
            let calls = calls(self.cluster, &self.watched, &name);
            let called = calls.iter().any(|call| call["configuration"] == *self.name);
            if called { Ok(()) } else { Err("not called".to_owned()) }
        })
        .await
        .unwrap();
    }
}

/// Pods that are created without pause, several at a time.
struct Load {
    width: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    /// How many were created, and what went wrong.
    outcome: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    fn start(site: &Site) -> Self {
        let (client, namespace) = (site.client.clone(), site.watched.clone());
        let (width, stop) = (Arc::new(AtomicUsize::new(2)), Arc::new(AtomicBool::new(false)));
        let (wide, stopped) = (Arc::clone(&width), Arc::clone(&stop));
        let outcome = tokio::spawn(async move {
            let (mut created, mut failures) = (0, Vec::new());
            // Leaves the machine to the others in between.
            let mut pace = interval(Duration::from_millis(50));
            while !stopped.load(Ordering::Relaxed) {
                pace.tick().await;
                let mut round = JoinSet::new();
                for number in 0..wide.load(Ordering::Relaxed) {
                    let pod = asking_pod(
                        &format!("load-{created}-{number}"),
                        &json!([{"name": "ascend", "image": "x"}]),
                    );
                    let (client, namespace) = (client.clone(), namespace.clone());
                    round.spawn(async move { create(&client, &namespace, pod).await });
                }
                for outcome in round.join_all().await {
                    match outcome {
                        Ok(_) => created += 1,
                        Err(error) => failures.push(error.to_string()),
                    }
                }
            }
            (created, failures)
        });
        Self { width, stop, outcome }
    }

    /// More at a time than ever before, so that connections are made and not only used again.
    fn widen(&self) {
        self.width.fetch_add(4, Ordering::Relaxed);
    }

    async fn stop(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.outcome.await.unwrap()
    }
}

fn trusting(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Whether a replica shows a certificate of this authority, which is given as in a Secret.
fn serves(site: &Site, replica: &Webhook, authority: &str) -> bool {
    use base64::Engine;
    let pem = base64::engine::general_purpose::STANDARD.decode(authority).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let name = format!("swansong-webhook.{}.svc", site.namespace).try_into().unwrap();
    let mut connection = ClientConnection::new(trusting(roots), name).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port(replica))).unwrap();
    while connection.is_handshaking() {
        if connection.complete_io(&mut stream).is_err() {
            return false;
        }
    }
    true
}

/// Waits until each replica serves this authority's certificate and trusts no other.
async fn agree(site: &Site, replicas: &[Webhook], authority: &str) {
    eventually("all replicas to agree", PATIENCE, || async {
        let mut dissent = replicas.iter().enumerate().filter(|(_, replica)| {
            replica.metric("swansong_tls_authorities_trusted") != Some(1.0)
                || !serves(site, replica, authority)
        });
        dissent.next().map_or(Ok(()), |(number, _)| Err(format!("replica {number} doesn't")))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn two_replicas_make_one_authority_and_serve_through_the_service() {
    let site = Site::new("self-managed").await;
    let replicas = site.start_two(&[]).await;
    let authority = site.only_authority("").await;
    // Each replica in turn is the only endpoint, so that each is proven to serve under the one authority.
    for (number, replica) in replicas.iter().enumerate() {
        let name = format!("replica-{number}");
        site.admit(&name, replica).await;
        site.answers(&name).await;
        site.cluster.kubectl(&["delete", "-n", &site.namespace, "endpointslice", &name]).await.unwrap();
    }

    // Restarted replicas find what is there and make nothing new.
    drop(replicas);
    let again = site.start("pod-2", &[]).await.unwrap();
    let secret = site.secret().await.unwrap();
    assert_eq!(secret["data"]["ca.crt"], authority.as_str());
    drop(again);
}

/// A replica that was killed is called before it has read its certificate again.
#[tokio::test]
async fn whoever_calls_before_the_certificate_is_there_waits_for_it() {
    let site = Site::new("early").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    token_kubeconfig(site.cluster, &site.namespace, &file).await;
    // Without rights it has no certificate.
    let replica = site.start_as(&file, "pod-0", &QUICK).await.unwrap();
    assert!(replica.health("/readyz").contains("no certificate yet"));
    let address = ("127.0.0.1", port(&replica));
    let name = "swansong-webhook.early.svc".try_into().unwrap();
    let mut connection = ClientConnection::new(trusting(RootCertStore::empty()), name).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    connection.write_tls(&mut stream).unwrap();

    grant_everything(site.cluster, &site.namespace).await;
    let answer = spawn_blocking(move || connection.complete_io(&mut stream)).await.unwrap();
    // It is shown a certificate, which it doesn't trust; that is this client's own judgement.
    assert!(answer.unwrap_err().to_string().contains("UnknownIssuer"));
}

/// B58: whoever loses the race to create the Secret takes what the other one made.
#[tokio::test]
async fn b58_replicas_that_start_together_make_one_authority_time_and_again() {
    for round in 0..5 {
        let site = Site::new(&format!("together-{round}")).await;
        let replicas = site.start_two(&[]).await;
        let authority = site.only_authority("").await;
        agree(&site, &replicas, &authority).await;
        let series = "swansong_tls_events_total{event=\"authority_issued\"}";
        let issued: f64 = replicas.iter().map(|replica| replica.metric(series).unwrap()).sum();
        assert!(issued.total_cmp(&1.0).is_eq(), "round {round}: {issued} authorities");
        let mut creations = site.cluster.audit_log().unwrap();
        creations.retain(|event| {
            let of_site = event
                .object_ref
                .as_ref()
                .is_some_and(|object| object.resource == "secrets" && object.namespace == site.namespace);
            of_site && event.verb == "create"
        });
        let mut codes: Vec<_> =
            creations.iter().map(|event| event.response_status.as_ref().unwrap().code).collect();
        codes.sort_unstable();
        assert!(codes == [201] || codes == [201, 409], "round {round}: {codes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_refused_while_the_authority_changes() {
    timeout(Duration::from_mins(1), change()).await.expect("a minute is enough");
}

/// The annotation, a newcomer meanwhile, then the loss of the Secret: all under load.
async fn change() {
    let site = Site::new("rotated").await;
    let mut replicas = Vec::from(site.start_two(&QUICK).await);
    let first = site.only_authority("").await;
    for (number, replica) in replicas.iter().enumerate() {
        site.admit(&format!("replica-{number}"), replica).await;
    }
    site.answers("first").await;

    let load = Load::start(&site);
    let annotate = ["annotate", "-n", &site.namespace, "secret", SECRET, "swansong.dev/rotate=ca"];
    site.cluster.kubectl(&annotate).await.unwrap();
    site.comes("next-ca.crt").await;
    load.widen();
    let third = site.start("pod-2", &QUICK).await.unwrap();
    site.admit("replica-2", &third).await;
    replicas.push(third);
    site.comes("previous-ca.crt").await;
    load.widen();
    eventually("replicas to note what they serve", PATIENCE, || async {
        let secret = site.secret().await?;
        let noted = secret["metadata"]["annotations"]["swansong.dev/serving"].to_string();
        if ["pod-0", "pod-1", "pod-2"].iter().all(|pod| noted.contains(pod)) { Ok(()) } else { Err(noted) }
    })
    .await
    .unwrap();
    let second = site.only_authority(&first).await;
    load.widen();
    agree(&site, &replicas, &second).await;
    let secret = site.secret().await.unwrap();
    assert!(secret["metadata"]["annotations"]["swansong.dev/rotate"].is_null(), "{secret:#}");
    assert!(replicas.iter().all(|replica| !serves(&site, replica, &first)));

    site.cluster.kubectl(&["delete", "-n", &site.namespace, "secret", SECRET]).await.unwrap();
    let last = site.only_authority(&second).await;
    load.widen();
    agree(&site, &replicas, &last).await;
    let (created, failures) = load.stop().await;
    assert_eq!(failures, Vec::<String>::new(), "of {created}");
    site.answers("last").await;

    // Three replicas did the work of one.
    for (event, expected) in [
        ("authority_issued", 2.0),
        ("authority_announced", 1.0),
        ("authority_promoted", 1.0),
        ("request_ignored", 0.0),
    ] {
        let series = format!("swansong_tls_events_total{{event=\"{event}\"}}");
        let times: f64 = replicas.iter().map(|replica| replica.metric(&series).unwrap()).sum();
        assert!(times.total_cmp(&expected).is_eq(), "{event} {times} times");
    }
    assert!(created > 20, "only {created} pods were created");
}
