//! Collecting what a running job shows.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};
use swansong_clusterd::reset_config::name_for;
use swansong_testcluster::{Error, eventually};

use crate::operator::CONTAINER;
use crate::proof::Rank;
use crate::training_log::TrainingLog;

/// Longer than the training processes themselves try.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Waits until all pods of a job have reported whether they reached each other; rank 0 comes first.
pub async fn ranks(client: &Client, namespace: &str, job: &str, count: usize) -> Result<Vec<Rank>, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("training.kubeflow.org/job-name={job}"));
    let mut ranks = eventually(&format!("the pods of {job} have reported"), TIMEOUT, || async {
        let list = pods.list(&of_job).await.map_err(|error| error.to_string())?;
        if list.items.len() != count {
            return Err(format!("{} of {count} pods exist", list.items.len()));
        }
        let mut ranks = Vec::new();
        for pod in list {
            ranks.push(rank(&pods, pod).await?);
        }
        Ok(ranks)
    })
    .await?;
    ranks.sort_by_key(|rank| rank.report.rank);
    Ok(ranks)
}

async fn rank(pods: &Api<Pod>, pod: Pod) -> Result<Rank, String> {
    let name = pod.name_any();
    let log = LogParams { container: Some(CONTAINER.to_owned()), ..LogParams::default() };
    let log = pods.logs(&name, &log).await.map_err(|error| format!("{name}: {error}; {}", state(&pod)))?;
    let report = TrainingLog::read(&log);
    // The container may be faster than the kubelet's report of the pod's address.
    let addressed = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    match report.complete {
        Some(_) if addressed => Ok(Rank { pod, log, report }),
        _ => Err(format!("{name}: {}; last line: {}", state(&pod), log.lines().last().unwrap_or_default())),
    }
}

/// Why a pod doesn't run, from its status.
fn state(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return "no status".to_owned() };
    let phase = status.phase.as_deref().unwrap_or("no phase");
    let conditions = status.conditions.iter().flatten().filter_map(|condition| condition.message.as_deref());
    let containers = status.container_statuses.iter().flatten().filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        waiting.message.as_deref().or(waiting.reason.as_deref())
    });
    let messages: Vec<_> = conditions.chain(containers).collect();
    format!("{phase} ({})", messages.join("; "))
}

/// The rank-0 Service of a job.
pub async fn service(client: &Client, namespace: &str, job: &str) -> Result<Service, Error> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("training.kubeflow.org/job-name={job}"));
    eventually(&format!("the Service of {job}"), TIMEOUT, || async {
        let list = services.list(&of_job).await.map_err(|error| error.to_string())?;
        list.items.into_iter().next().ok_or_else(|| "there is none".to_owned())
    })
    .await
}

/// The ConfigMap in which ClusterD notes a job's lost ranks.
pub async fn reset_config(client: &Client, namespace: &str, job: &str) -> Result<ConfigMap, Error> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let name = name_for(job);
    eventually(&format!("ConfigMap {name}"), TIMEOUT, || config_maps.get(&name)).await
}
