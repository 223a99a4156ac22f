//! Kubeconfig files. They are written as JSON, which every reader of YAML reads.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::Error;
use crate::pki::Pair;

/// A kubeconfig for one user of one cluster, everything inline.
pub(crate) fn with_certificate(server: &str, authority: &str, user: &str, pair: &Pair) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "testcluster",
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(authority) },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": STANDARD.encode(&pair.certificate),
                "client-key-data": STANDARD.encode(&pair.key),
            },
        }],
        "contexts": [{ "name": "testcluster", "context": { "cluster": "testcluster", "user": user } }],
        "current-context": "testcluster",
    });
    format!("{config:#}\n")
}

/// A client from a kubeconfig that holds everything inline.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client, Error> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

pub(crate) async fn config(kubeconfig: &Path) -> Result<Config, Error> {
    // It fails when there is one already, and that one does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let wrong = |source| Error::Kubeconfig { path: kubeconfig.to_owned(), source: Box::new(source) };
    let document = Kubeconfig::read_from(kubeconfig).map_err(wrong)?;
    Config::from_custom_kubeconfig(document, &KubeConfigOptions::default()).await.map_err(wrong)
}
