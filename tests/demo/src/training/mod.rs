//! Training jobs in Pods, with fakes of all of MindCluster's programs that take part in a dump.
//!
//! The fake ClusterD in Python orders the dump ([`Leader`]). [`Training`] acts as device plugin, Volcano and the part of
//! ascend-operator that reports failed jobs.

mod leader;
mod manifest;

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use swansong_testcluster::{Cluster, Error, eventually};

pub use self::leader::Leader;
use crate::io_error;
use crate::operator::{self, ControllerError};

/// Timeout for the start of a job.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A job of which each Pod has as many ranks as NPUs.
#[derive(Clone, Copy)]
pub struct Job {
    pub name: &'static str,
    pub pods: i32,
    pub npus_per_pod: i32,
    pub first_npu: i32,
    /// The rank whose NPU fails; rank 0 is in the first Pod.
    pub lost_rank: i32,
    /// Of the job and of its Pods.
    pub annotations: &'static [(&'static str, &'static str)],
    pub save_seconds: u32,
    /// Whether image and start script are as MindCluster's documentation has them before its changes.
    pub is_untouched: bool,
    /// A folder of the image that an empty volume hides, as if the image lacked it.
    pub hidden: Option<&'static str>,
    /// Whether job and start script have the settings of MindCluster's documentation.
    pub by_hand: bool,
}

impl Job {
    pub fn lost_npu(&self) -> i32 {
        self.first_npu + self.lost_rank
    }
}

/// A job whose ranks are connected to MindIO's controller.
pub struct Training {
    pub job: Job,
    pub namespace: String,
    pub uid: String,
    checkpoints: PathBuf,
}

impl Training {
    /// Creates the job and all that belongs to it, and waits until it trains.
    pub async fn start(
        cluster: &Cluster,
        leader: &Leader,
        folder: &Path,
        job: Job,
    ) -> Result<Self, TrainingError> {
        let training = Self::create(cluster, leader, folder, job).await?;
        let what = format!("{} trains", job.name);
        eventually(&what, TIMEOUT, || async {
            let log = training.logs(cluster).await;
            let ready = log.contains("all processors registered") && leader.has_job(&training.uid);
            if ready { Ok(()) } else { Err(log) }
        })
        .await?;
        Ok(training)
    }

    /// Creates the job and all that belongs to it.
    pub async fn create(
        cluster: &Cluster,
        leader: &Leader,
        folder: &Path,
        job: Job,
    ) -> Result<Self, TrainingError> {
        let client = cluster.client().await?;
        let namespace = cluster.namespace(job.name).await?;
        let checkpoints = folder.join(job.name);
        prepare_folder(&checkpoints)?;
        for npu in job.first_npu..job.first_npu + job.pods * job.npus_per_pod {
            let device = folder.join(format!("davinci{npu}"));
            std::fs::write(&device, "").map_err(io_error(format!("write {}", device.display())))?;
        }
        let object = serde_json::from_value(manifest::ascend_job(job, leader, folder)?)
            .map_err(|source| Error::Json { what: job.name.to_owned(), source })?;
        let jobs = operator::ascend_jobs(client.clone(), &namespace);
        let stored = jobs.create(&PostParams::default(), &object).await.map_err(Error::from)?;
        let training = Self { job, namespace, uid: stored.uid().unwrap_or_default(), checkpoints };
        training.create_pod_group(cluster).await?;
        operator::reconcile(&client, &stored).await?;
        Ok(training)
    }

    /// As Volcano and ClusterD do for the operator's job.
    async fn create_pod_group(&self, cluster: &Cluster) -> Result<(), Error> {
        let metadata = json!({
            "name": self.group(), "namespace": self.namespace,
            "labels": {"process-recover-enable": "on"}, "annotations": {"recover-strategy": "dump"},
        });
        let group =
            json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": metadata});
        let summary = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"job_status": "running"},
            "metadata": {"name": format!("job-summary-{}", self.job.name), "namespace": self.namespace}});
        cluster.apply(&format!("{group}\n---\n{summary}")).await.map(drop)
    }

    fn group(&self) -> String {
        format!("{}-{}", self.job.name, self.uid)
    }

    /// The Pods that have failed.
    pub async fn failed_pods(&self, client: &Client) -> Result<Vec<Pod>, Error> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let mut pods = pods.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        pods.retain(|pod| phase(pod).as_deref() == Some("Failed"));
        Ok(pods)
    }

    /// Acts as ascend-operator and ClusterD until a Pod has failed and its PodGroup is deleted.
    pub async fn fail_with_first_pod(&self, client: Client, leader: &Leader) -> Result<(), Error> {
        let mut status = None;
        eventually("a Pod has failed", Duration::from_mins(4), || {
            let now = leader.status(&self.uid);
            let is_new = now.is_some() && status != now;
            status.clone_from(&now);
            let client = client.clone();
            async move {
                if is_new {
                    self.set_status(&client, &now.unwrap_or_default()).await?;
                }
                let failed = self.failed_pods(&client).await?;
                let waiting = || Error::Start("no Pod has failed".to_owned());
                if failed.is_empty() { Err(waiting()) } else { Ok(()) }
            }
        })
        .await?;
        leader.send(&json!({"delete_pod_group": self.uid}))?;
        pod_groups(client, &self.namespace).delete(&self.group(), &DeleteParams::default()).await?;
        Ok(())
    }

    async fn set_status(&self, client: &Client, status: &str) -> Result<(), Error> {
        let annotation = json!({"metadata": {"annotations": {"ProcessRecoverStatus": status}}});
        let groups = pod_groups(client.clone(), &self.namespace);
        groups.patch(&self.group(), &PatchParams::default(), &Patch::Merge(annotation)).await?;
        Ok(())
    }

    /// Where the job saves checkpoints, as this machine sees it.
    pub fn folder(&self) -> &Path {
        &self.checkpoints
    }

    /// A file of the checkpoint, once the checkpoint has its final name.
    pub fn checkpoint(&self) -> Option<PathBuf> {
        let files = std::fs::read_dir(self.checkpoints.join("iter_0000001")).ok()?;
        files.flatten().map(|file| file.path()).next()
    }

    /// The logs of all Pods, each line behind the Pod's name.
    pub async fn logs(&self, cluster: &Cluster) -> String {
        let selector = format!("--selector=job-name={}", self.job.name);
        let arguments =
            ["--namespace", &self.namespace, "logs", &selector, "--all-containers", "--prefix", "--tail=-1"];
        cluster.kubectl(&arguments).await.unwrap_or_else(|error| error.to_string())
    }
}

/// Why a job couldn't be started.
#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    #[error(transparent)]
    Cluster(#[from] Error),
    #[error(transparent)]
    Operator(#[from] ControllerError),
}

/// Containers run as a user that the machine doesn't know.
fn prepare_folder(folder: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let made = std::fs::create_dir(folder);
    let open = || std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777));
    made.and_then(|()| open()).map_err(io_error(format!("make the folder {}", folder.display())))
}

fn pod_groups(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "PodGroup");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind))
}
