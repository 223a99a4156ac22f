//! The thin edge: watches jobs and creates what is missing.

use futures::{TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::JobError;
use super::objects::{Addresses, pods, rank_zero_service};

/// Why a job's objects could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Nothing can be made of the job.
    #[error("AscendJob {name}: {source}")]
    Job {
        name: String,
        /// What is wrong with it.
        source: JobError,
    },
    /// The API server refused or could not be reached.
    #[error("the API server: {0}")]
    Kube(#[source] Box<kube::Error>),
    /// The watch failed.
    #[error("watching AscendJobs: {0}")]
    Watch(#[source] Box<watcher::Error>),
    /// An object could not be read or written as JSON.
    #[error("an object of AscendJob {name}: {source}")]
    Json {
        /// The job's name.
        name: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl From<kube::Error> for ControllerError {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

pub fn ascend_jobs(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("mindxdl.gitee.com", "v1", "AscendJob");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind))
}

/// Works on every job of a namespace until the watch fails or the caller drops it.
///
/// `refused` is called for a job that can't be reconciled; the job is left as it is.
pub async fn run(
    client: Client,
    namespace: &str,
    mut refused: impl FnMut(&ControllerError),
) -> Result<(), ControllerError> {
    let jobs = watcher(ascend_jobs(client.clone(), namespace), watcher::Config::default()).applied_objects();
    pin_mut!(jobs);
    while let Some(job) = jobs.try_next().await.map_err(|error| ControllerError::Watch(Box::new(error)))? {
        if let Err(error) = reconcile(&client, &job).await {
            refused(&error);
        }
    }
    Ok(())
}

/// Creates the Service and the Pods of a job where they are missing.
///
/// The Service is never changed afterwards, as with the real operator.
pub async fn reconcile(client: &Client, job: &DynamicObject) -> Result<(), ControllerError> {
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let name = job.name_any();
    let wrong_job = |source| ControllerError::Job { name: name.clone(), source };
    let wrong_json = |source| ControllerError::Json { name: name.clone(), source };
    let namespace = job.namespace().ok_or(JobError::Missing("namespace")).map_err(wrong_job)?;
    let value = serde_json::to_value(job).map_err(wrong_json)?;

    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let Some(service) = rank_zero_service(&value).map_err(wrong_job)? else {
        return Err(wrong_job(JobError::Missing("Master, Scheduler or Chief")));
    };
    let service = get_or_create(&services, service).await?.map_err(wrong_json)?;
    let service = serde_json::to_value(service).map_err(wrong_json)?;
    let addresses = Addresses::of(&service, clusterd_address(client).await?)
        .ok_or(JobError::Missing("Service with an address"))
        .map_err(wrong_job)?;

    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    for pod in pods(&value, &addresses).map_err(wrong_job)? {
        get_or_create(&api, pod).await?.map_err(wrong_json)?;
    }
    Ok(())
}

/// The object as it is stored, created first if need be. The inner error is one of the JSON.
async fn get_or_create<K>(api: &Api<K>, object: Value) -> Result<Result<K, serde_json::Error>, kube::Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    let object: K = match serde_json::from_value(object) {
        Ok(object) => object,
        Err(error) => return Ok(Err(error)),
    };
    let name = object.name_any();
    if let Some(stored) = api.get_opt(&name).await? {
        return Ok(Ok(stored));
    }
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => api.get(&name).await.map(Ok),
        created => created.map(Ok),
    }
}

/// The cluster address of ClusterD, where there is one.
async fn clusterd_address(client: &Client) -> Result<Option<String>, kube::Error> {
    let services: Api<Service> = Api::namespaced(client.clone(), "mindx-dl");
    let service = services.get_opt("clusterd-grpc-svc").await?;
    Ok(service.and_then(|service| service.spec?.cluster_ip))
}
