//! Bringing Swansong into a test cluster, as `make image install` brings it into any other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use swansong_testcluster::image::{ImageBuilder, ImageError};
use swansong_testcluster::{Cluster, Error as ClusterError, eventually};
use tempfile::TempDir;

pub const IMAGE: &str = "localhost/swansong:dev";

/// For the webhook to answer after its pods are ready: the API server learns of a new
/// configuration by a watch.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Why Swansong could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The image could not be made.
    #[error("Swansong's image: {0}")]
    Image(#[from] ImageError),
    /// The manifests could not be made ready.
    #[error("{what}: {reason}")]
    Manifests {
        /// What was tried.
        what: String,
        /// How it failed.
        reason: String,
    },
    /// The cluster refused something.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// The top of the repository, which holds the manifests.
pub(crate) fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Makes an image of the program `swansong` and loads it.
pub async fn load_image(cluster: &Cluster, program: &Path, folder: &Path) -> Result<(), InstallError> {
    let tar = folder.join("swansong.tar");
    ImageBuilder::new(IMAGE).program(program, "/swansong")?.entrypoint(["/swansong"]).write(&tar)?;
    Ok(cluster.load_image(&tar).await?)
}

/// Applies the manifests with the loaded image and waits until the API server has new objects
/// changed by Swansong.
///
/// The pods being ready isn't enough: until the webhook has put its authority into the webhook
/// configuration and the API server has seen that, objects are stored as they come.
pub async fn install(cluster: &Cluster) -> Result<(), InstallError> {
    let manifests = kustomization("base")?;
    apply(cluster, manifests.path()).await?;
    ready(cluster).await
}

/// Applies a folder with a kustomization and takes over the ownership of its fields.
pub async fn apply(cluster: &Cluster, folder: &Path) -> Result<(), InstallError> {
    let apply = ["apply", "--server-side", "--force-conflicts", "--kustomize"].map(Path::new);
    cluster.kubectl(&[&apply[..], &[folder]].concat()).await?;
    Ok(())
}

/// Waits until every replica is there and the API server has new objects changed by Swansong.
pub async fn ready(cluster: &Cluster) -> Result<(), InstallError> {
    let rollout = ["rollout", "status", "deployment/swansong-webhook", "--timeout=120s"];
    if let Err(error) = cluster.kubectl(&[&["--namespace=swansong-system"], &rollout[..]].concat()).await {
        return Err(InstallError::Manifests { what: error.to_string(), reason: explain(cluster).await });
    }
    answers(cluster).await?;
    Ok(())
}

/// Waits until a Pod that asks for a dump would be stored with Swansong's record on it.
async fn answers(cluster: &Cluster) -> Result<(), ClusterError> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "default");
    let probe = json!({
        "metadata": { "name": "swansong-probe", "annotations": { "recover-strategy": "dump" } },
        "spec": { "containers": [{ "name": "ascend", "image": IMAGE }] },
    });
    let probe: Pod = serde_json::from_value(probe)
        .map_err(|source| ClusterError::Json { what: "a Pod to try with".to_owned(), source })?;
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the webhook answers", TIMEOUT, || async {
        let stored = pods.create(&parameters, &probe).await.map_err(|error| error.to_string())?;
        let changed = stored.annotations().contains_key("swansong.dev/injected");
        changed.then_some(()).ok_or_else(|| "a Pod came through unchanged".to_owned())
    })
    .await
}

/// A kustomization of an overlay (`base`, `overlays/strict`, …) with our image, below `target/`, as long as it is held.
pub fn kustomization(overlay: &str) -> Result<TempDir, InstallError> {
    let failed = |reason| InstallError::Manifests { what: "manifests/with-image".to_owned(), reason };
    let unmade = |error: io::Error| failed(error.to_string());
    // The script needs its folder two levels below the repository's top.
    let target = repository().join("target");
    fs::create_dir_all(&target).map_err(unmade)?;
    let folder = tempfile::Builder::new().prefix("install-").tempdir_in(&target).map_err(unmade)?;
    let mut script = Command::new("manifests/with-image");
    script.args([overlay, IMAGE]).arg(folder.path()).current_dir(repository()).stdin(Stdio::null());
    let output = script.output().map_err(unmade)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(folder)
}

/// The state and the log of the webhook's pods, for the error message when they aren't ready.
async fn explain(cluster: &Cluster) -> String {
    let pods = cluster.kubectl(&["--namespace=swansong-system", "get", "pods", "--output=wide"]).await;
    let logs = ["logs", "deployment/swansong-webhook", "--tail=20"];
    let logs = cluster.kubectl(&[&["--namespace=swansong-system"], &logs[..]].concat()).await;
    let text = |result: Result<String, ClusterError>| result.unwrap_or_else(|error| error.to_string());
    format!("{}\n{}", text(pods), text(logs))
}
