//! Kubeconfig files. They are written as JSON, which every reader of YAML reads.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

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
