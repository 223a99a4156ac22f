//! What GitOps tools do with the manifests.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use swansong_testcluster::{Cluster, Tier};

use crate::support::{REPOSITORY, base64};

fn folder(kustomization: &str) -> PathBuf {
    Path::new(REPOSITORY).join("manifests").join(kustomization)
}

async fn kubectl(cluster: &Cluster, command: &str, kustomization: &str) -> String {
    let folder = folder(kustomization);
    let arguments: Vec<&str> = command.split(' ').chain(["--kustomize", folder.to_str().unwrap()]).collect();
    let output = cluster.kubectl(&arguments).await;
    output.unwrap_or_else(|error| panic!("kubectl {command} {kustomization}: {error}"))
}

/// As the webhook does; the API server keeps it, since no applier owns the field.
async fn set_ca_bundle(cluster: &Cluster) {
    let bundle = base64("ca".to_owned());
    let operations: Vec<_> = (0..3)
        .map(|index| json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": bundle}))
        .collect();
    let patch = ["patch", "mutatingwebhookconfiguration", "swansong", "--type=json", "--patch"];
    cluster.kubectl(&[&patch[..], &[json!(operations).to_string().as_str()]].concat()).await.unwrap();
}

#[tokio::test]
async fn applied_twice_by_a_gitops_tool_nothing_differs() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let kustomizations = ["base", "overlays/agent-gateway", "gateway"];
    for kustomization in kustomizations {
        kubectl(&cluster, "apply --server-side --field-manager=gitops", kustomization).await;
    }
    set_ca_bundle(&cluster).await;
    for kustomization in kustomizations {
        let again =
            kubectl(&cluster, "apply --server-side --field-manager=gitops --output=name", kustomization)
                .await;
        assert!(!again.is_empty());
        let diff = Command::new(&cluster.info().kubectl)
            .args(["diff", "--server-side", "--field-manager=gitops", "--kustomize"])
            .arg(folder(kustomization))
            .env("KUBECONFIG", cluster.kubeconfig())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&diff.stdout);
        assert!(
            diff.status.success() && printed.is_empty(),
            "{kustomization}: {printed}{}",
            String::from_utf8_lossy(&diff.stderr)
        );
    }
    let path = "jsonpath={.webhooks[*].clientConfig.caBundle}";
    let get = ["get", "mutatingwebhookconfiguration", "swansong", "--output", path];
    assert_eq!(cluster.kubectl(&get).await.unwrap(), "Y2E= Y2E= Y2E=");
}
