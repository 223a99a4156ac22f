//! A certificate from a Secret that the kubelet mounts and updates, as with cert-manager.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use swansong_demo::install;
use swansong_testcluster::eventually;

use crate::load::Load;
use crate::outcomes::judge;
use crate::site::{NAMESPACE, SERVICE, Site, TIMEOUT, bundles, manifests, served_leaf, site};

/// Name in the cert-manager component.
const SECRET: &str = "swansong-webhook-cert-manager";

/// Creations per second, enough for connections to remain open.
const PER_SECOND: u32 = 20;

/// A key as rcgen reads it, and as it is stored.
struct KeyFormat {
    name: &'static str,
    pkcs8: &'static str,
    stored: &'static str,
}

macro_rules! key {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/certs/tests/suite/data/", $file))
    };
}

const KEY_FORMATS: [KeyFormat; 3] = [
    KeyFormat { name: "PKCS#8", pkcs8: key!("ec-pkcs8.pem"), stored: key!("ec-pkcs8.pem") },
    KeyFormat { name: "SEC1", pkcs8: key!("ec-pkcs8.pem"), stored: key!("ec-sec1.pem") },
    KeyFormat { name: "PKCS#1", pkcs8: key!("rsa-pkcs8.pem"), stored: key!("rsa-pkcs1.pem") },
];

/// A CA that signs by an intermediate.
struct Ca {
    root: String,
    intermediate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let params = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = params("root").self_signed(&root_key).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&root, root_key).unwrap();
        let intermediate = params("intermediate").signed_by(&key, &issuer).unwrap().pem();
        let issuer = Issuer::from_ca_cert_pem(&intermediate, key).unwrap();
        Self { root, intermediate, issuer }
    }

    /// Issues a leaf of the Service for this key, followed by the intermediate.
    fn chain(&self, pkcs8: &str) -> String {
        let params = CertificateParams::new([SERVICE.to_owned()]).unwrap();
        let leaf = params.signed_by(&KeyPair::from_pem(pkcs8).unwrap(), &self.issuer).unwrap();
        format!("{}{}", leaf.pem(), self.intermediate)
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

/// Waits until each replica serves the leaf of this chain.
async fn all_serve(site: &Site<'_>, ca: &Ca, chain: &str) {
    let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    eventually("each replica serves the new leaf", TIMEOUT, || async {
        for replica in site.replicas().await {
            if served_leaf(&replica, ca.root.as_bytes())? != leaf {
                return Err(format!("{} doesn't", replica.name_any()));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until the log of each replica contains this text.
async fn all_log(site: &Site<'_>, text: &str) {
    eventually(text, TIMEOUT, || async {
        for replica in site.replicas().await {
            let log = site.kubectl(&["logs", &replica.name_any()]).await;
            if !log.contains(text) {
                return Err(format!("{} has no such line", replica.name_any()));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Installs the cert-manager overlay without the objects for cert-manager, which isn't installed.
async fn install_mounted(site: &Site<'_>, ca: &Ca) {
    let folder = manifests("overlays/cert-manager");
    let rendered = site.cluster.kubectl(&["kustomize".as_ref(), folder.path().as_os_str()]).await.unwrap();
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    objects.retain(|object| !object["apiVersion"].as_str().unwrap().starts_with("cert-manager.io/"));
    let file = folder.path().join("objects.json");
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string()).unwrap();
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename"].map(Path::new);
    site.cluster.kubectl(&[&apply[..], &[file.as_path()]].concat()).await.unwrap();
    // Replicas that manage their certificate would restore their own CA.
    site.settled().await;
    let configuration = site.get("mutatingwebhookconfiguration/swansong").await.unwrap();
    let root = STANDARD.encode(&ca.root);
    let trust = |index| json!({ "op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": root });
    let patch: Vec<Value> = (0..bundles(&configuration).count()).map(trust).collect();
    let patch = json!(patch).to_string();
    site.kubectl(&["patch", "mutatingwebhookconfiguration/swansong", "--type=json", "--patch", &patch]).await;
    install::ready(site.cluster).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_each_update_of_a_mounted_pair() {
    let Some(site) = site().await else { return };
    let ca = Ca::new();
    let [first, later @ ..] = KEY_FORMATS;
    site.cluster
        .apply(
            &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })
                .to_string(),
        )
        .await
        .unwrap();
    let chain = ca.chain(first.pkcs8);
    store(&site, &chain, first.stored).await;
    install_mounted(&site, &ca).await;
    all_serve(&site, &ca, &chain).await;

    let namespace = site.cluster.namespace("mounted").await.unwrap();
    let load = Load::start(site.cluster, &namespace, PER_SECOND).await;
    let mut in_use = chain;
    for KeyFormat { name, pkcs8, stored } in later {
        eprintln!("{name}, of an intermediate");
        in_use = ca.chain(pkcs8);
        store(&site, &in_use, stored).await;
        all_serve(&site, &ca, &in_use).await;
    }
    // A new certificate with another key isn't used; the next valid pair is.
    store(&site, &ca.chain(KEY_FORMATS[0].pkcs8), KEY_FORMATS[2].stored).await;
    all_log(&site, "is not the key of the first certificate").await;
    all_serve(&site, &ca, &in_use).await;
    let next = ca.chain(KEY_FORMATS[0].pkcs8);
    store(&site, &next, KEY_FORMATS[0].stored).await;
    all_serve(&site, &ca, &next).await;

    let creations = load.stop().await;
    let (wrong, admitted_unprocessed) = judge(site.cluster, &namespace, &creations);
    assert_eq!(wrong, Vec::<String>::new(), "of {}", creations.len());
    assert_eq!(admitted_unprocessed, 0, "of {}", creations.len());
    assert!(creations.len() > 100, "only {} creations", creations.len());
}
