//! What the pipeline reads from the API server.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use swansong_clusterd::{reset_config, statistic};
use swansong_fault_model::reconcile::Observed;
use swansong_fault_model::{Handling, Subject};
use swansong_runtime::kube::{error_message, status_code};
use tokio::time::timeout;

use crate::outcomes::AffectedJob;
use crate::pod::{NpuPod, Owner, PodReference};
use crate::preflight::{JobState, Objection, PodGroup, Why, deletes_running_pods, objections};
use crate::processes::Activity;
use crate::public::handling_of;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// ClusterD's state of a job (`job-summary-<job>`, `00_cluster_resources.md`).
const SUMMARY: &str = "job-summary-";
const JOB_STATUS: &str = "job_status";
/// How Volcano deletes the Pods of a job with a faulty device.
const FAULT_SCHEDULING: &str = "fault-scheduling";

/// Reads jobs, and what ClusterD shows.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: Client,
    /// The namespace in which agents share what they see of dumps; `None` if they don't.
    pub(crate) namespace: Option<String>,
}

/// The checks of the jobs on a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobChecks {
    /// Why ranks would end without a checkpoint.
    pub objections: Vec<Objection>,
    /// The jobs that a fault would hit.
    pub jobs: Vec<AffectedJob>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Reads with `client`; agents share what they see in `namespace`.
    pub const fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace }
    }

    /// Checks whether the jobs that use `subject` could dump. `device_info` is why ClusterD would drop all faults of this
    /// node; `pods` is `None` while they aren't known.
    pub async fn check_jobs(
        &self,
        subject: Subject,
        pods: Option<&Vec<NpuPod>>,
        device_info: Option<String>,
        activity: &Activity,
    ) -> JobChecks {
        let node = device_info.map(|why| Objection { pod: None, why: Why::DeviceInfoNotUsable(why) });
        let mut checks = JobChecks { objections: node.into_iter().collect(), jobs: Vec::new() };
        let Some(pods) = pods else {
            let why = Why::JobStateUnknown("the Pods of this node aren't known yet".to_owned());
            checks.objections.push(Objection { pod: None, why });
            return checks;
        };
        let mut known: HashMap<(&str, &str), Result<JobState, String>> = HashMap::new();
        for pod in pods.iter().filter(|pod| pod.uses(subject)) {
            let PodReference { namespace, uid, group, job: Some(job), .. } = &pod.reference else { continue };
            let key = (namespace.as_str(), group.as_deref().unwrap_or_default());
            let state = match known.entry(key) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(self.job_state(&pod.reference, job).await),
            };
            match state {
                Ok(state) => {
                    checks.objections.extend(objections(pod, subject, state));
                    checks.jobs.push(AffectedJob::new(pod, state, activity.get(uid)));
                }
                Err(problem) => checks.objections.push(Objection {
                    pod: Some(pod.reference.to_string()),
                    why: Why::JobStateUnknown(problem.clone()),
                }),
            }
        }
        checks
    }

    async fn job_state(&self, pod: &PodReference, job: &Owner) -> Result<JobState, String> {
        let namespace = &pod.namespace;
        let (reset, summary) = (reset_config::name_for(&job.name), format!("{SUMMARY}{}", job.name));
        let (group, data, summary, object) = futures::try_join!(
            self.pod_group(pod),
            self.config_map(namespace, &reset),
            self.config_map(namespace, &summary),
            self.job(namespace, job),
        )?;
        let policy = object.as_ref().and_then(|job| job.data.pointer("/spec/runPolicy/cleanPodPolicy"));
        let scheduling = object.as_ref().and_then(|job| job.labels().get(FAULT_SCHEDULING));
        Ok(JobState {
            group,
            reset_config: reset_config::state(data.as_ref()),
            status: summary.and_then(|mut data| data.remove(JOB_STATUS)),
            deletes_running_pods: policy.and_then(|policy| policy.as_str()).is_some_and(deletes_running_pods),
            is_force_deleted: scheduling.is_some_and(|scheduling| scheduling == "force"),
        })
    }

    /// The job itself, of which only warnings depend: `None` if it may not be read.
    async fn job(&self, namespace: &str, job: &Owner) -> Result<Option<DynamicObject>, String> {
        if job.kind != "AscendJob" {
            return Ok(None);
        }
        let (group, version) = job.api_version.split_once('/').unwrap_or(("", &job.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &job.kind));
        let jobs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        match timeout(TIMEOUT, jobs.get_opt(&job.name)).await {
            Ok(Err(error)) if status_code(&error) == Some(403) => Ok(None),
            answer => answer.map_err(|_| no_answer())?.map_err(|error| error_message(&error)),
        }
    }

    /// The PodGroup of a Pod, if there is one.
    pub async fn pod_group(&self, pod: &PodReference) -> Result<Option<PodGroup>, String> {
        let Some(name) = &pod.group else { return Ok(None) };
        let kind = GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "PodGroup");
        let groups: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &pod.namespace, &ApiResource::from_gvk(&kind));
        let found = answered(groups.get_metadata_opt(name)).await?;
        Ok(found.map(|mut group| {
            let labels = std::mem::take(group.labels_mut());
            PodGroup::new(labels, std::mem::take(group.annotations_mut()))
        }))
    }

    /// The data of a ConfigMap, if there is one.
    pub async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        Ok(answered(maps.get_opt(name)).await?.map(|map| map.data.unwrap_or_default()))
    }

    /// What ClusterD shows of this node's faults.
    pub async fn observe(&self, node: &str) -> Result<Observed, String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), statistic::NAMESPACE);
        let found = match timeout(TIMEOUT, maps.get_opt(statistic::NAME)).await {
            Ok(Ok(found)) => found,
            // It may not be read, so that nothing can be confirmed.
            Ok(Err(error)) if status_code(&error) == Some(403) => return Ok(Observed::default()),
            Ok(Err(error)) => return Err(error_message(&error)),
            Err(_) => return Err(no_answer()),
        };
        let data = found.and_then(|map| map.data).unwrap_or_default();
        observed(&data, node).map_err(|error| error.to_string())
    }
}

/// What the data of `statistic-fault-info` says of a node.
pub(crate) fn observed(
    data: &BTreeMap<String, String>,
    node: &str,
) -> Result<Observed, statistic::InvalidStatistic> {
    let text = |key: &str| data.get(key).map(String::as_str);
    let found = statistic::node_faults(text(statistic::FAULTS), text(statistic::DESCRIPTION), node)?;
    let faults = found.faults.into_iter();
    let faults: BTreeMap<String, Option<Handling>> =
        faults.map(|fault| (fault.id.into_owned(), fault.class.map(handling_of))).collect();
    Ok(Observed { faults, is_complete: found.complete })
}

/// The answer of the API server within ten seconds. The error is a sentence.
pub async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| error_message(&error)),
        Err(_) => Err(no_answer()),
    }
}

fn no_answer() -> String {
    format!("the API server didn't answer within {TIMEOUT:?}")
}
