//! What the agents of a job's nodes see of its dump, which they share by one ConfigMap for each node.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use swansong_fault_model::outcome::{Outcome, Processors};
use tokio::time::timeout;
use tracing::warn;

use crate::clock::as_millis;
use crate::cluster::{Cluster, answered};
use crate::outcomes::{CheckedOutcome, OpenJob};
use crate::pod::PodReference;
use crate::preflight::PodGroup;
use crate::processes::{Activity, merge};

/// The key of the ConfigMap.
const KEY: &str = "pods.json";
/// How many ConfigMaps are read at once.
const CONCURRENT: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(10);
/// The rank of a Pod in its job.
pub const RANK: &str = "hccl/rankIndex";

/// A Pod of a job.
struct JobPod {
    reference: PodReference,
    node: String,
    /// Whether it has rank 0 and runs.
    is_first: bool,
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
            let activity = self.activity(&pods, node, local).await;
            let uids = pods.iter().map(|pod| &pod.reference.uid).chain([&pod.uid]);
            let seen: Vec<_> = uids.filter_map(|uid| activity.get(uid)).collect();
            let (processors, renamed) = merge(seen.into_iter(), as_millis(open.since), as_millis(open.now));
            outcome = open.outcome(group.as_ref(), processors, renamed);
        }
        let first = pods.into_iter().find(|pod| pod.is_first);
        Ok(outcome.map(|outcome| (outcome, first.map(|pod| pod.reference))))
    }

    /// The Pods of the job of `pod`. Those that have ended may have saved.
    async fn job_pods(&self, pod: &PodReference) -> Result<Vec<JobPod>, String> {
        let Some(job) = &pod.job else { return Ok(Vec::new()) };
        let label = if job.kind == "AscendJob" { "job-name" } else { "volcano.sh/job-name" };
        let chosen = ListParams::default().labels(&format!("{label}={}", job.name));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let pods = answered(pods.list(&chosen)).await?.items.into_iter();
        let own = pods.filter(|pod| pod.owner_references().iter().any(|owner| owner.uid == job.uid));
        Ok(own
            .map(|found| JobPod {
                is_first: is_running(&found) && found.annotations().get(RANK).is_some_and(|rank| rank == "0"),
                node: found.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
                reference: PodReference {
                    name: found.name_any(),
                    uid: found.uid().unwrap_or_default(),
                    ..pod.clone()
                },
            })
            .collect())
    }

    /// What the agents of the nodes of `pods` see.
    async fn activity(&self, pods: &[JobPod], node: &str, local: &Activity) -> Activity {
        let mut activity = local.clone();
        let Some(namespace) = &self.namespace else { return activity };
        let nodes: BTreeSet<&str> =
            pods.iter().map(|pod| pod.node.as_str()).filter(|other| *other != node).collect();
        let read = async |node: &str| -> Option<Activity> {
            // An agent without the right to inspect processes shares nothing.
            let data = self.config_map(namespace, &name(node)).await.ok()??;
            serde_json::from_str(data.get(KEY)?).ok()
        };
        let mut shared = stream::iter(nodes).map(read).buffer_unordered(CONCURRENT);
        while let Some(other) = shared.next().await {
            activity.extend(other.unwrap_or_default());
        }
        activity
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
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
