//! The overlay for cert-manager, beside the real cert-manager, whose programs run on the host.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use swansong_demo::install;
use swansong_testcluster::{Cluster, Tier, eventually, programs};
use tokio::process::{Child, Command};

const NAMESPACE: &str = "swansong-system";
const SECRET: &str = "swansong-webhook-cert-manager";
/// The kubelet checks for changed Secrets every ten seconds and then waits for its own cache.
const TIMEOUT: Duration = Duration::from_mins(3);

#[tokio::test]
async fn cert_manager_issues_and_renews_what_the_webhook_serves() {
    let Some(cluster) = Cluster::start_if_possible(Tier::Node).await.unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _cert_manager = start_cert_manager(&cluster, folder.path()).await;
    install::load_image(&cluster, Path::new(env!("CARGO_BIN_EXE_swansong")), folder.path()).await.unwrap();
    install::apply(&cluster, install::kustomization("overlays/cert-manager").unwrap().path()).await.unwrap();
    // A Pod is injected: the API server verifies the certificate with the caBundle, both of cert-manager.
    install::ready(&cluster).await.unwrap();
    let client = cluster.client().await.unwrap();
    let first = certificate(&client).await.unwrap();
    assert_eq!(served(&cluster, &client).await.unwrap(), vec![first.clone(); 2]);

    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let renewed = eventually("cert-manager issues another certificate", TIMEOUT, || async {
        let issued = certificate(&client).await?;
        if issued == first { Err("it is still the first".to_owned()) } else { Ok(issued) }
    });
    let renewed = renewed.await.unwrap();
    eventually("every replica serves it, without a restart", TIMEOUT, || async {
        let served = served(&cluster, &client).await?;
        if served == vec![renewed.clone(); 2] { Ok(()) } else { Err(format!("{served:?}")) }
    })
    .await
    .unwrap();
    install::ready(&cluster).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let containers = pod.status.unwrap().container_statuses.unwrap();
        assert!(containers.iter().all(|container| container.restart_count == 0), "{containers:?}");
    }
    cluster.stop().await.unwrap();
}

/// Defines cert-manager's kinds and starts its controller and its CA injector.
async fn start_cert_manager(cluster: &Cluster, folder: &Path) -> [Child; 2] {
    let cert_manager = programs::ensure_cert_manager().unwrap();
    for file in fs::read_dir(&cert_manager.definitions).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "yaml") {
            let template = fs::read_to_string(file).unwrap();
            // The labels are templates of Helm's.
            let definition: String =
                template.split_inclusive('\n').filter(|line| !line.contains("{{")).collect();
            cluster.apply(&definition).await.unwrap();
        }
    }
    [&cert_manager.controller, &cert_manager.ca_injector].map(|program| {
        let log = folder.join(program.file_name().unwrap()).with_extension("log");
        let log = fs::File::create(log).unwrap();
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(cluster.kubeconfig()).arg("--leader-elect=false");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn().unwrap()
    })
}

/// The chain in the Secret that the webhook's Pods mount, PEM.
async fn certificate(client: &Client) -> Result<String, String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let secret = secrets.get(SECRET).await.map_err(|error| error.to_string())?;
    let chain = secret.data.unwrap_or_default().remove("tls.crt").ok_or("it has no certificate yet")?;
    String::from_utf8(chain.0).map_err(|error| error.to_string())
}

/// The chain that each replica serves, PEM.
async fn served(cluster: &Cluster, client: &Client) -> Result<Vec<String>, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let replicas = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    let mut chains = Vec::new();
    for replica in replicas {
        let path =
            format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/certificate", replica.name_any());
        chains.push(cluster.kubectl(&["get", "--raw", &path]).await.map_err(|error| error.to_string())?);
    }
    Ok(chains)
}
