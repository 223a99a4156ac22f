//! The self-managed certificate with a real API server: several replicas create one CA and set the `caBundle`, and
//! reviews pass through the Service, also during a rotation.

mod load;

use std::cell::Cell;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};
use swansong_testcluster::{Cluster, eventually};
use tokio::task::{JoinHandle, spawn_blocking};

use self::load::Load;
use crate::support::{
    Webhook, asking_pod, calls, configuration, create, grant_everything, rig, swansong, token_kubeconfig,
};

pub(crate) const SECRET: &str = "swansong-webhook-tls";

const TRUSTED_UNTIL: &str = "swansong.dev/trusted-until";

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Rotates within seconds instead of minutes.
pub(crate) const QUICK: [&str; 2] = ["--ca-settle-time=5s", "--check-interval=300ms"];

/// An address of this machine for endpoints, in which the API server rejects loopback addresses.
fn own_address() -> IpAddr {
    // Connecting a datagram socket sends no packet; it only selects the source address.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

fn port(webhook: &Webhook) -> u16 {
    webhook.address.rsplit(':').next().unwrap().parse().unwrap()
}

/// An installation: a namespace with Secret and Service, and a configuration for one other namespace.
pub(crate) struct Installation {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: Client,
    /// Of the MutatingWebhookConfiguration.
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) watched: String,
}

impl Installation {
    pub(crate) async fn new(name: &str) -> Self {
        let cluster = rig().await.cluster;
        let client = cluster.client().await.unwrap();
        let namespace = cluster.namespace(name).await.unwrap();
        let watched = cluster.namespace("watched").await.unwrap();
        let service = json!({"service": {"namespace": namespace, "name": "swansong-webhook", "path": "/mutate", "port": 443}});
        let only_there = json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": watched}},
            // Other webhooks of this cluster would inject as well.
            "failurePolicy": "Fail",
        });
        create(&client, "", configuration(cluster, name, &service, &only_there).await).await.unwrap();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "swansong-webhook"}, "spec": {"ports": [{"port": 443, "name": "https"}]}});
        create(&client, &namespace, service).await.unwrap();
        Self { cluster, client, name: name.to_owned(), namespace, watched }
    }

    /// Starts a replica, which is ready only once it has a certificate.
    fn start(&self, arguments: &[&str]) -> JoinHandle<Webhook> {
        self.start_as(self.cluster.kubeconfig(), arguments)
    }

    /// Starts a replica with the rights of a kubeconfig.
    pub(crate) fn start_as(&self, kubeconfig: &Path, arguments: &[&str]) -> JoinHandle<Webhook> {
        let mut command = swansong(["webhook", "--listen", "0.0.0.0:0", "--health-listen", "127.0.0.1:0"]);
        command
            .args(["--log-format", "json", "--namespace", &self.namespace])
            .args(["--webhook-configuration", &self.name])
            .args(arguments)
            .env("KUBECONFIG", kubeconfig);
        spawn_blocking(move || Webhook::start(&command))
    }

    async fn start_two(&self, arguments: &[&str]) -> [Webhook; 2] {
        let (first, second) = (self.start(arguments), self.start(arguments));
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
    pub(crate) async fn has_key(&self, key: &str) {
        eventually(key, TIMEOUT, || async {
            let secret = self.secret().await?;
            if secret["data"][key].is_string() { Ok(()) } else { Err("missing".to_owned()) }
        })
        .await
        .unwrap();
    }

    /// Waits until Secret and every `caBundle` contain one CA, other than this one, and no further CA.
    pub(crate) async fn only_ca(&self, other_than: &str) -> String {
        eventually("caBundle and Secret to agree", TIMEOUT, || self.agreed_ca(other_than)).await.unwrap()
    }

    async fn agreed_ca(&self, other_than: &str) -> Result<String, String> {
        let secret = self.secret().await?;
        let configuration = self.get(&format!("mutatingwebhookconfiguration/{}", self.name)).await?;
        let ca = secret["data"]["ca.crt"].as_str().unwrap_or_default().to_owned();
        let webhooks = configuration["webhooks"].as_array().cloned().unwrap_or_default();
        let changing = ["next-ca.crt", "previous-ca.crt"].iter().any(|key| !secret["data"][*key].is_null());
        let agree = !ca.is_empty()
            && ca != other_than
            && !changing
            && webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == *ca);
        if agree { Ok(ca) } else { Err("not yet".to_owned()) }
    }

    async fn annotate(&self, annotation: &str) {
        let command = ["annotate", "--overwrite", "-n", &self.namespace, "secret", SECRET, annotation];
        self.cluster.kubectl(&command).await.unwrap();
    }

    /// Ends the trust in previous CAs, as the expiry of their last leaves does.
    async fn end_overlap(&self) {
        let secret = self.secret().await.unwrap();
        let until = secret["metadata"]["annotations"][TRUSTED_UNTIL].as_str().unwrap_or_default();
        let ids = until.split_ascii_whitespace().filter_map(|entry| entry.split_once('='));
        let past: Vec<String> = ids.map(|(id, _)| format!("{id}=2026-01-01T00:00:00Z")).collect();
        if past.is_empty() {
            return;
        }
        self.annotate(&format!("{TRUSTED_UNTIL}={}", past.join(" "))).await;
    }

    /// Waits until another CA than this one is in use, and ends the trust in previous ones.
    pub(crate) async fn changed_ca(&self, other_than: &str) -> String {
        eventually("another CA", TIMEOUT, || async {
            let secret = self.secret().await?;
            let data = &secret["data"];
            let changed =
                data["ca.crt"].is_string() && data["ca.crt"] != *other_than && data["next-ca.crt"].is_null();
            if changed { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await
        .unwrap();
        // A previous CA may be adopted from the `caBundle` only after the Secret is created again.
        eventually("caBundle and Secret to agree", TIMEOUT, || async {
            self.end_overlap().await;
            self.agreed_ca(other_than).await
        })
        .await
        .unwrap()
    }

    /// Waits until a replica is ready, and adds it to the endpoints of the Service.
    pub(crate) async fn add_endpoint(&self, name: &str, replica: &Webhook) {
        eventually("the replica to be ready", TIMEOUT, || async {
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

    /// Waits until a replica answers a review through the Service.
    pub(crate) async fn answers(&self, prefix: &str) {
        let attempt = Cell::new(0);
        eventually("the Service to answer", TIMEOUT, || async {
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

fn trusting(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Returns whether a replica serves a certificate of this CA, given as in a Secret.
fn serves(site: &Installation, replica: &Webhook, ca: &str) -> bool {
    use base64::Engine;
    let pem = base64::engine::general_purpose::STANDARD.decode(ca).unwrap();
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

/// Waits until each replica serves a certificate of this CA.
async fn all_serve(site: &Installation, replicas: &[Webhook], ca: &str) {
    eventually("all replicas serve the certificate", TIMEOUT, || async {
        let mut others = replicas.iter().enumerate().filter(|(_, replica)| !serves(site, replica, ca));
        others.next().map_or(Ok(()), |(number, _)| Err(format!("replica {number} doesn't")))
    })
    .await
    .unwrap();
}

/// The value of a counter of events, added up over all replicas.
fn events(replicas: &[Webhook], event: &str) -> f64 {
    let series = format!("swansong_tls_events_total{{event=\"{event}\"}}");
    replicas.iter().map(|replica| replica.metric(&series).unwrap()).sum()
}

#[tokio::test]
async fn two_replicas_create_one_ca_and_serve_through_the_service() {
    let site = Installation::new("self-managed").await;
    let replicas = site.start_two(&[]).await;
    let ca = site.only_ca("").await;
    // Each replica in turn is the only endpoint.
    for (number, replica) in replicas.iter().enumerate() {
        let name = format!("replica-{number}");
        site.add_endpoint(&name, replica).await;
        site.answers(&name).await;
        site.cluster.kubectl(&["delete", "-n", &site.namespace, "endpointslice", &name]).await.unwrap();
    }

    // Restarted replicas use the stored CA.
    drop(replicas);
    let again = site.start(&[]).await.unwrap();
    let secret = site.secret().await.unwrap();
    assert_eq!(secret["data"]["ca.crt"], ca.as_str());
    drop(again);
}

/// API servers call a restarted replica before it has read its certificate.
#[tokio::test]
async fn a_handshake_before_the_first_certificate_waits_for_it() {
    let site = Installation::new("early").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    token_kubeconfig(site.cluster, &site.namespace, &file).await;
    // Without rights it has no certificate.
    let replica = site.start_as(&file, &QUICK).await.unwrap();
    assert!(replica.health("/readyz").contains("no certificate yet"));
    let address = ("127.0.0.1", port(&replica));
    let name = "swansong-webhook.early.svc".try_into().unwrap();
    let mut connection = ClientConnection::new(trusting(RootCertStore::empty()), name).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    connection.write_tls(&mut stream).unwrap();

    grant_everything(site.cluster, &site.namespace).await;
    let answer = spawn_blocking(move || connection.complete_io(&mut stream)).await.unwrap();
    // The client receives a certificate, which it doesn't trust.
    assert!(answer.unwrap_err().to_string().contains("UnknownIssuer"));
}

#[tokio::test]
async fn replicas_that_start_together_create_one_ca() {
    for round in 0..5 {
        let site = Installation::new(&format!("together-{round}")).await;
        let replicas = site.start_two(&[]).await;
        let ca = site.only_ca("").await;
        all_serve(&site, &replicas, &ca).await;
        let issued = events(&replicas, "ca_issued");
        assert!(issued.total_cmp(&1.0).is_eq(), "round {round}: {issued} CAs");
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

/// A requested rotation during which a replica joins, the end of the overlap, the loss of the Secret, and a revocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_rejected_during_rotations() {
    let site = Installation::new("rotated").await;
    let mut replicas = Vec::from(site.start_two(&QUICK).await);
    let first = site.only_ca("").await;
    for (number, replica) in replicas.iter().enumerate() {
        site.add_endpoint(&format!("replica-{number}"), replica).await;
    }
    site.answers("first").await;

    let load = Load::start(&site);
    site.annotate("swansong.dev/rotate=ca").await;
    site.has_key("next-ca.crt").await;
    load.widen();
    let third = site.start(&QUICK).await.unwrap();
    site.add_endpoint("replica-2", &third).await;
    replicas.push(third);
    site.has_key("previous-ca.crt").await;
    load.widen();
    let secret = site.secret().await.unwrap();
    let second = secret["data"]["ca.crt"].as_str().unwrap().to_owned();
    assert_ne!(second, first);
    assert!(secret["metadata"]["annotations"]["swansong.dev/rotate"].is_null(), "{secret:#}");
    all_serve(&site, &replicas, &second).await;
    assert!(replicas.iter().all(|replica| !serves(&site, replica, &first)));
    site.end_overlap().await;
    assert_eq!(site.only_ca(&first).await, second);
    load.widen();

    site.cluster.kubectl(&["delete", "-n", &site.namespace, "secret", SECRET]).await.unwrap();
    site.has_key("previous-ca.crt").await;
    let last = site.secret().await.unwrap()["data"]["ca.crt"].as_str().unwrap().to_owned();
    assert_ne!(last, second);
    all_serve(&site, &replicas, &last).await;
    load.widen();
    site.answers("widened").await;
    let (created, failures) = load.stop().await;
    assert_eq!(failures, Vec::<String>::new(), "of {created}");
    assert!(created > 20, "only {created} pods were created");

    // At once, and so without a promise to requests meanwhile.
    site.annotate("swansong.dev/rotate=revoke-ca").await;
    let revoked = site.only_ca(&last).await;
    all_serve(&site, &replicas, &revoked).await;
    site.answers("last").await;

    for (event, expected) in
        [("ca_issued", 3.0), ("ca_announced", 1.0), ("ca_promoted", 1.0), ("unknown_rotation_request", 0.0)]
    {
        let times = events(&replicas, event);
        assert!(times.total_cmp(&expected).is_eq(), "{event} {times} times");
    }
}
