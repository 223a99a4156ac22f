//! What the API server is asked: what the jobs on a device could do, what ClusterD has, what became of a dump.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use http::{Method, StatusCode};
use serde::Deserialize;
use swansong_clusterd::{reset_config, statistic};
use swansong_fault_model::Subject;

use super::pod::NpuPod;
use super::preflight::{Found, Group, Objection, Why, objections};
use super::reconcile::View;
use super::terms::{JobNote, Preflight};
use crate::api::{ApiError, ApiServer};

/// What ClusterD says of a job it knows (`job-summary-<job>`, `00_cluster_resources.md`).
const SUMMARY: &str = "job-summary-";
const JOB_STATUS: &str = "job_status";

#[derive(Deserialize)]
struct ConfigMap {
    data: Option<BTreeMap<String, String>>,
}

/// Looks whether the jobs that `subject` concerns could dump. `device_info` is why ClusterD wouldn't take a fault of this
/// node at all.
pub(crate) async fn preflight(
    api: &ApiServer,
    subject: Subject,
    pods: Option<&Vec<NpuPod>>,
    device_info: Option<String>,
) -> Preflight {
    let node = device_info.map(|why| Objection { pod: None, why: Why::NoDeviceInfo(why) });
    let mut all = Preflight { objections: node.into_iter().collect(), ..Preflight::default() };
    let Some(pods) = pods else {
        let problem = "the pods of this node aren't known yet".to_owned();
        all.objections.push(Objection { pod: None, why: Why::NotSeen(problem) });
        return all;
    };
    let mut known: HashMap<(String, String), Result<Found, String>> = HashMap::new();
    for pod in pods.iter().filter(|pod| pod.uses(subject)) {
        let Some(job) = &pod.job else { continue };
        let name = (pod.namespace.clone(), pod.group.clone().unwrap_or_default());
        if !known.contains_key(&name) {
            let found = look(api, pod, &job.name).await.map_err(|error| error.to_string());
            known.insert(name.clone(), found);
        }
        match &known[&name] {
            Ok(found) => {
                all.objections.extend(objections(pod, subject, found));
                all.jobs.push(note(pod, subject, found.group.as_ref()));
            }
            Err(problem) => all.objections.push(Objection {
                pod: Some(format!("{}/{}", pod.namespace, pod.name)),
                why: Why::NotSeen(problem.clone()),
            }),
        }
    }
    all
}

fn note(pod: &NpuPod, subject: Subject, group: Option<&Group>) -> JobNote {
    let fast = pod.fast_dump && group.is_some_and(Group::dumps_first);
    JobNote {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        pod_uid: pod.uid.clone(),
        container: pod.container.clone(),
        group: pod.group.clone().unwrap_or_default(),
        job: pod.job.clone().unwrap_or_default(),
        dumps: group.is_some_and(Group::dumps),
        before: group.and_then(|group| group.status.clone()),
        outcome: None,
        fast_ranks: if fast { pod.ranks(subject) } else { Vec::new() },
    }
}

async fn look(api: &ApiServer, pod: &NpuPod, job: &str) -> Result<Found, ApiError> {
    let namespace = &pod.namespace;
    let group = async {
        match &pod.group {
            Some(group) => self::group(api, namespace, group).await,
            None => Ok(None),
        }
    };
    let (reset, summary) = (reset_config::name_for(job), format!("{SUMMARY}{job}"));
    // Ranks wait for it.
    let (group, data, summary) =
        tokio::try_join!(group, config_map(api, namespace, &reset), config_map(api, namespace, &summary),)?;
    Ok(Found {
        group,
        reset_config: reset_config::state(data.as_ref()),
        job_status: summary.and_then(|mut data| data.remove(JOB_STATUS)),
    })
}

/// A PodGroup, if there is one.
pub(crate) async fn group(api: &ApiServer, namespace: &str, name: &str) -> Result<Option<Group>, ApiError> {
    let path = format!("/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups/{name}");
    let Some(answer) = get(api, &path).await? else { return Ok(None) };
    let group = Group::read(&answer);
    group.map(Some).map_err(|error| ApiError::NotUnderstood { path, problem: error.to_string() })
}

/// The data of a ConfigMap, if there is one.
async fn config_map(
    api: &ApiServer,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, ApiError> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let Some(answer) = get(api, &path).await? else { return Ok(None) };
    let map: ConfigMap = serde_json::from_slice(&answer)
        .map_err(|error| ApiError::NotUnderstood { path, problem: error.to_string() })?;
    Ok(Some(map.data.unwrap_or_default()))
}

/// What ClusterD has of this node's faults.
pub(crate) async fn view(api: &ApiServer, node: &str) -> Result<View, ApiError> {
    let data = match config_map(api, statistic::NAMESPACE, statistic::NAME).await {
        Ok(data) => data.unwrap_or_default(),
        Err(error) if error.code() == Some(StatusCode::FORBIDDEN) => return Ok(View::Forbidden),
        Err(error) => return Err(error),
    };
    let text = |key: &str| data.get(key).map(String::as_str);
    let standing =
        statistic::node_faults(text(statistic::FAULTS), text(statistic::DESCRIPTION), node).map_err(
            |error| ApiError::NotUnderstood { path: statistic::NAME.to_owned(), problem: error.to_string() },
        )?;
    let ids: BTreeSet<String> = standing.fault_ids.into_iter().map(Into::into).collect();
    Ok(View::Has { ids, complete: standing.complete })
}

async fn get(api: &ApiServer, path: &str) -> Result<Option<Vec<u8>>, ApiError> {
    match api.call(Method::GET, path, "", Vec::new()).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.code() == Some(StatusCode::NOT_FOUND) => Ok(None),
        Err(error) => Err(error),
    }
}
