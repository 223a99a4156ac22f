//! Installing and removing the manifests.

use std::collections::BTreeSet;
use std::path::Path;

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
