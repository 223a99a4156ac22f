//! What the agents of a job's nodes see of its dump, which they share by one ConfigMap for each node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use swansong_fault_model::outcome::{Outcome, Processors};
use tokio::time::timeout;
use tracing::warn;

use crate::cluster::{Cluster, answered};
use crate::outcomes::{CheckedOutcome, OpenJob};
use crate::pod::PodReference;
use crate::preflight::PodGroup;
use crate::processes::{Activity, ObservedPod, merge};

/// The key of the ConfigMap.
const KEY: &str = "pods.json";
/// How many ConfigMaps are read at once.
const CONCURRENT: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(10);
/// The prefix of resources that are NPUs, and of the annotations that name granted ones.
pub const NPU_RESOURCES: &str = "huawei.com/";
/// The rank of a Pod in its job.
pub const RANK: &str = "hccl/rankIndex";

/// A Pod of a job.
struct JobPod {
    reference: PodReference,
    node: String,
    /// Whether it has rank 0 and runs.
    is_first: bool,
    /// Whether its ranks may still save.
    may_save: bool,
}

impl Cluster {
    /// Reads which of `jobs` have a result. `local` is what this node's agent sees.
    pub(crate) async fn check_outcomes(
        &self,
        jobs: Vec<OpenJob>,
        node: &str,
        local: &Activity,
    ) -> Vec<CheckedOutcome> {
        let mut results = Vec::new();
        for open in jobs {
            match self.check_outcome(&open, node, local).await {
                Ok(Some((outcome, first_pod))) => results.push(CheckedOutcome { open, outcome, first_pod }),
                Ok(None) => {}
                Err(error) => warn!(error, "the result of a job can't be read"),
            }
        }
        results
    }

    async fn check_outcome(
        &self,
        open: &OpenJob,
        node: &str,
        local: &Activity,
    ) -> Result<Option<(Outcome, Option<PodReference>)>, String> {
        let pod = &open.job.pod;
        let group = self.pod_group(pod).await?;
        let group = if pod.group.is_none() { Some(PodGroup::default()) } else { group };
        let mut outcome = open.outcome(group.as_ref(), Processors::Connected, None);
        let pods =
            if outcome.is_some() || group.as_ref().is_none_or(|group| group.is_paused) || open.is_late() {
                self.job_pods(pod).await?
            } else {
                Vec::new()
            };
        if outcome.is_none() {
            let (activity, problem) = self.activity(&pods, node, local).await;
            let observed = observed_pods(&pods, &pod.uid, &activity);
            let (processors, renamed) = merge(&observed, open.times());
            outcome = open.outcome(group.as_ref(), processors, renamed);
            // What can't be read now may be the checkpoint.
            if let Some(problem) = problem
                && matches!(outcome, Some(Outcome::Unknown(_)))
                && open.may_save()
            {
                return Err(problem);
            }
        }
        let first = pods.into_iter().find(|pod| pod.is_first);
        Ok(outcome.map(|outcome| (outcome, first.map(|pod| pod.reference))))
    }

    /// The Pods of the job of `pod` that use NPUs. Those that have ended may have saved.
    async fn job_pods(&self, pod: &PodReference) -> Result<Vec<JobPod>, String> {
        let Some(job) = &pod.job else { return Ok(Vec::new()) };
        let label = if job.kind == "AscendJob" { "job-name" } else { "volcano.sh/job-name" };
        let chosen = ListParams::default().labels(&format!("{label}={}", job.name));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let pods = answered(pods.list(&chosen)).await?.items.into_iter();
        let own = pods.filter(|pod| pod.owner_references().iter().any(|owner| owner.uid == job.uid));
        Ok(own
            .filter(uses_npus)
            .map(|found| JobPod {
                is_first: phase(&found) == "Running"
                    && found.annotations().get(RANK).is_some_and(|rank| rank == "0"),
                may_save: !matches!(phase(&found), "Succeeded" | "Failed" | "Pending"),
                node: found.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
                reference: PodReference {
                    name: found.name_any(),
                    uid: found.uid().unwrap_or_default(),
                    ..pod.clone()
                },
            })
            .collect())
    }

    /// What the agents of the nodes of `pods` see, and why that isn't all.
    async fn activity(&self, pods: &[JobPod], node: &str, local: &Activity) -> (Activity, Option<String>) {
        let (mut activity, mut problem) = (local.clone(), None);
        let Some(namespace) = &self.namespace else { return (activity, problem) };
        let nodes: BTreeSet<&str> =
            pods.iter().map(|pod| pod.node.as_str()).filter(|other| *other != node).collect();
        let read = async |node: &str| -> Result<Activity, String> {
            let data = self.config_map(namespace, &name(node)).await?.unwrap_or_default();
            // An agent without the right to inspect processes shares nothing.
            let Some(text) = data.get(KEY) else { return Ok(Activity::new()) };
            serde_json::from_str(text).map_err(|error| format!("ConfigMap {}: {error}", name(node)))
        };
        let mut shared = stream::iter(nodes).map(read).buffer_unordered(CONCURRENT);
        while let Some(other) = shared.next().await {
            match other {
                Ok(other) => activity.extend(other),
                Err(error) => problem = Some(error),
            }
        }
        (activity, problem)
    }
}

/// What is seen of each Pod, and of the agent's own one, `uid`, if it was deleted.
fn observed_pods<'a>(pods: &[JobPod], uid: &str, activity: &'a Activity) -> Vec<ObservedPod<'a>> {
    let mut observed: Vec<ObservedPod<'_>> = pods
        .iter()
        .map(|pod| ObservedPod { may_save: pod.may_save, activity: activity.get(&pod.reference.uid) })
        .collect();
    if let Some(own) = activity.get(uid)
        && !pods.iter().any(|pod| pod.reference.uid == uid)
    {
        observed.push(ObservedPod { may_save: true, activity: Some(own) });
    }
    observed
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether a Pod has ranks: MindSpore's scheduler needs no NPU. The device plugin writes the annotations.
fn uses_npus(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let limits = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let mut names = limits.flat_map(BTreeMap::keys).chain(pod.annotations().keys());
    names.any(|name| name.starts_with(NPU_RESOURCES))
}

fn name(node: &str) -> String {
    format!("swansong-dumps.{node}")
}

/// Shares what the agent of `node` sees of the dumps of its Pods.
///
/// # Errors
///
/// When the API server doesn't take it.
pub async fn share(client: &Client, namespace: &str, node: &str, activity: &Activity) -> Result<(), String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let name = name(node);
    // Numbers, strings and maps can always be serialized.
    let text = serde_json::to_string(activity).unwrap_or_default();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "swansong"}},
        "data": {KEY: text},
    });
    let apply = PatchParams::apply("swansong-agent").force();
    let written = timeout(TIMEOUT, maps.patch(&name, &apply, &Patch::Apply(map))).await;
    written
        .map_err(|_| format!("the API server didn't answer within {TIMEOUT:?}"))?
        .map(drop)
        .map_err(|error| swansong_runtime::kube::error_message(&error))
}
