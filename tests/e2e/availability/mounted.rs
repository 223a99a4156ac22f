//! A certificate that someone else keeps, in a Secret that the kubelet mounts and renews (B55, B56, B61).

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};
use swansong_demo::install;
use swansong_testcluster::eventually;

use crate::fates::judge;
use crate::load::Load;
use crate::site::{NAMESPACE, PATIENCE, Site, bundles, manifests, site};

/// By the cert-manager component.
const SECRET: &str = "swansong-webhook-cert-manager";

const SERVICE: &str = "swansong-webhook.swansong-system.svc";

/// Creations a second: enough to have connections open all the time.
const PER_SECOND: u32 = 20;

/// A key as rcgen reads it, and as it is stored.
struct Spelling {
    name: &'static str,
    pkcs8: &'static str,
    stored: &'static str,
}

macro_rules! key {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/certs/tests/suite/data/", $file))
    };
}

const SPELLINGS: [Spelling; 3] = [
    Spelling { name: "PKCS#8", pkcs8: key!("ec-pkcs8.pem"), stored: key!("ec-pkcs8.pem") },
    Spelling { name: "SEC1", pkcs8: key!("ec-pkcs8.pem"), stored: key!("ec-sec1.pem") },
    Spelling { name: "PKCS#1", pkcs8: key!("rsa-pkcs8.pem"), stored: key!("rsa-pkcs1.pem") },
];

/// An authority that signs by an intermediate.
struct Authority {
    root: String,
    intermediate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = authority("root").self_signed(&root_key).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&root, root_key).unwrap();
        let intermediate = authority("intermediate").signed_by(&key, &issuer).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&intermediate, key).unwrap();
        Self { root, intermediate, issuer }
    }

    /// A new leaf of the Service for this key, the intermediate behind it.
    fn chain(&self, pkcs8: &str) -> String {
        let params = CertificateParams::new([SERVICE.to_owned()]).unwrap();
        let leaf = params.signed_by(&KeyPair::from_pem(pkcs8).unwrap(), &self.issuer).unwrap();
        format!("{}{}", leaf.pem(), self.intermediate)
    }

    /// The leaf that a replica shows to a client that trusts the root only.
    fn shown_by(&self, address: &str) -> Result<CertificateDer<'static>, String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.root.as_bytes()).unwrap()).unwrap();
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
}

/// Stores a pair as cert-manager does.
async fn store(site: &Site<'_>, chain: &str, key: &str) {
    let data = json!({ "tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode(key) });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": SECRET, "namespace": NAMESPACE }, "data": data,
    });
    site.cluster.apply(&secret.to_string()).await.unwrap();
}

/// Waits until each replica shows this chain's leaf.
async fn served(site: &Site<'_>, authority: &Authority, chain: &str) {
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    eventually("each replica serves the new leaf", PATIENCE, || async {
        for replica in site.replicas().await {
            let address =
                replica.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
            if authority.shown_by(&address)? != leaf {
                return Err(format!("{} doesn't", replica.name_any()));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until each replica has said this in its log.
async fn told(site: &Site<'_>, text: &str) {
    eventually(text, PATIENCE, || async {
        for replica in site.replicas().await {
            let log = site.kubectl(&["logs", &replica.name_any()]).await;
            if !log.contains(text) {
                return Err(format!("{} doesn't say so", replica.name_any()));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// The cert-manager overlay, without the objects for cert-manager itself, which isn't there.
async fn install_mounted(site: &Site<'_>, authority: &Authority) {
    let folder = manifests("overlays/cert-manager");
    let rendered = site.cluster.kubectl(&["kustomize".as_ref(), folder.path().as_os_str()]).await.unwrap();
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    objects.retain(|object| !object["apiVersion"].as_str().unwrap().starts_with("cert-manager.io/"));
    let file = folder.path().join("objects.json");
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()).unwrap();
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename"].map(Path::new);
    site.cluster.kubectl(&[&apply[..], &[file.as_path()]].concat()).await.unwrap();
    // Those that keep their certificate themselves would put their own authority back.
    site.settled().await;
    let configuration = site.get("mutatingwebhookconfiguration/swansong").await.unwrap();
    let root = STANDARD.encode(&authority.root);
    let trust = |index| json!({ "op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": root });
    let patch: Vec<Value> = (0..bundles(&configuration).count()).map(trust).collect();
    let patch = json!(patch).to_string();
    site.kubectl(&["patch", "mutatingwebhookconfiguration/swansong", "--type=json", "--patch", &patch]).await;
    install::ready(site.cluster).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b55_b56_b61_a_mounted_pair_is_renewed_by_the_kubelet_again_and_again() {
    let Some(site) = site().await else { return };
    let authority = Authority::new();
    let [first, later @ ..] = SPELLINGS;
    site.cluster
        .apply(
            &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })
                .to_string(),
        )
        .await
        .unwrap();
    let chain = authority.chain(first.pkcs8);
    store(&site, &chain, first.stored).await;
    install_mounted(&site, &authority).await;
    served(&site, &authority, &chain).await;

    let namespace = site.cluster.namespace("mounted").await.unwrap();
    let load = Load::start(site.cluster, &namespace, PER_SECOND).await;
    let mut in_use = chain;
    for Spelling { name, pkcs8, stored } in later {
        eprintln!("{name}, of an intermediate");
        in_use = authority.chain(pkcs8);
        store(&site, &in_use, stored).await;
        served(&site, &authority, &in_use).await;
    }
    // A new certificate whose key isn't there yet: the pair before stays, and the next one is taken.
    store(&site, &authority.chain(SPELLINGS[0].pkcs8), SPELLINGS[2].stored).await;
    told(&site, "is not the key of the first certificate").await;
    served(&site, &authority, &in_use).await;
    let next = authority.chain(SPELLINGS[0].pkcs8);
    store(&site, &next, SPELLINGS[0].stored).await;
    served(&site, &authority, &next).await;

    let creations = load.stop().await;
    let (wrong, let_through) = judge(site.cluster, &namespace, &creations);
    assert_eq!(wrong, Vec::<String>::new(), "of {}", creations.len());
    assert_eq!(let_through, 0, "of {}", creations.len());
    assert!(creations.len() > 100, "only {} creations", creations.len());
}
