//! Installing and removing the manifests.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use swansong_testcluster::{Cluster, Tier};

use crate::support::REPOSITORY;

/// What `make install`, `install-agent` and `install-gateway` apply.
const KUSTOMIZATIONS: [&str; 4] = ["base", "overlays/node-readiness", "overlays/agent-gateway", "gateway"];

async fn kubectl(cluster: &Cluster, command: &str, kustomization: &str) {
    let folder = Path::new(REPOSITORY).join("manifests").join(kustomization);
    let mut arguments: Vec<&str> = command.split(' ').collect();
    arguments.extend(["--kustomize", folder.to_str().unwrap()]);
    if let Err(error) = cluster.kubectl(&arguments).await {
        panic!("kubectl {command} {kustomization}: {error}");
    }
}

/// The cluster-wide objects of the kinds that the manifests contain.
async fn cluster_wide(cluster: &Cluster) -> BTreeSet<String> {
    let kinds = "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingadmissionpolicies,\
                 validatingadmissionpolicybindings";
    let names = cluster.kubectl(&["get", kinds, "--output", "name"]).await.unwrap();
    names.lines().map(str::to_owned).collect()
}

/// Also shows that the manifests contain the API server's defaults: otherwise a server-side apply conflicts.
#[tokio::test]
async fn manifests_can_be_applied_both_ways_and_removed() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let before = cluster_wide(&cluster).await;
    for kustomization in KUSTOMIZATIONS {
        for _ in 0..2 {
            kubectl(&cluster, "apply", kustomization).await;
            kubectl(&cluster, "apply --server-side", kustomization).await;
        }
    }
    assert!(cluster_wide(&cluster).await.len() > before.len());
    for kustomization in KUSTOMIZATIONS.iter().rev() {
        // The API tier has no controller that ends the deletion of a namespace.
        kubectl(&cluster, "delete --wait=false --ignore-not-found", kustomization).await;
    }
    let left: Vec<_> = cluster_wide(&cluster).await.difference(&before).cloned().collect();
    assert_eq!(left, [""; 0]);
    let namespaces = cluster
        .kubectl(&["get", "namespaces", "--output", "custom-columns=:.metadata.name,:.status.phase"])
        .await
        .unwrap();
    for namespace in namespaces.lines().filter(|line| line.contains("swansong")) {
        assert!(namespace.contains("Terminating"), "{namespace}");
    }
}

/// A Node as agents leave it.
fn marked_node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "marked",
            "labels": {"swansong.dev/dump-ready": "false", "accelerator": "huawei-Ascend910"},
            "annotations": {"swansong.dev/boot-id": "1", "other.example/note": "stays"},
        },
        "spec": {"taints": [
            {"key": "swansong.dev/not-ready", "effect": "NoSchedule"}, {"key": "other.example/taint", "effect": "NoSchedule"},
        ]},
        "status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "DumpReady", "status": "False"}, {"type": "FaultsRelayed", "status": "True"},
        ]},
    })
}

#[tokio::test]
async fn uninstall_removes_everything_but_what_jobs_use() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let before = cluster_wide(&cluster).await;
    for kustomization in KUSTOMIZATIONS {
        kubectl(&cluster, "apply --server-side", kustomization).await;
    }
    let node = marked_node();
    cluster.apply(&node.to_string()).await.unwrap();
    let status = json!({"status": node["status"]}).to_string();
    cluster.kubectl(&["patch", "node", "marked", "--subresource=status", "--patch", &status]).await.unwrap();
    let of_job = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "reset-config-bert", "labels": {"reset": "true", "app.kubernetes.io/managed-by": "swansong"}},
    });
    cluster.apply(&of_job.to_string()).await.unwrap();

    for _ in 0..2 {
        let output = Command::new(Path::new(REPOSITORY).join("manifests/uninstall"))
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("KUBECTL", &cluster.info().kubectl)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("reset-config-bert"));
    }

    let left: Vec<_> = cluster_wide(&cluster).await.difference(&before).cloned().collect();
    assert_eq!(left, [""; 0]);
    let roles = ["get", "roles,rolebindings", "--namespace=kube-system", "--output=name"];
    assert!(!cluster.kubectl(&roles).await.unwrap().contains("swansong"));
    let namespaces = "jsonpath={range .items[*]}{.metadata.name} {.status.phase}{'\\n'}{end}";
    let namespaces = cluster.kubectl(&["get", "namespaces", "--output", namespaces]).await.unwrap();
    // The API tier has no controller that ends the deletion of a namespace.
    for namespace in namespaces.lines().filter(|line| line.contains("swansong")) {
        assert!(namespace.ends_with("Terminating"), "{namespace}");
    }
    let node = cluster.kubectl(&["get", "node", "marked", "--output=json"]).await.unwrap();
    let mut node: Value = serde_json::from_str(&node).unwrap();
    node["metadata"]["managedFields"].take();
    node["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].take();
    let text = node.to_string();
    for ours in ["swansong", "DumpReady", "FaultsRelayed"] {
        assert!(!text.contains(ours), "{text}");
    }
    for others in ["huawei-Ascend910", "other.example/note", "other.example/taint", "Ready"] {
        assert!(text.contains(others), "{others}: {text}");
    }
}
