//! A job and what belongs to it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;
use swansong_api::annotations::{CONTAINERS, RECOVER_STRATEGY};
use swansong_api::strategy::Strategies;

use super::Seen;

/// The container that ascend-operator completes.
pub const TRAINING: &str = "ascend";
/// The prefix of resources that are NPUs.
const NPU_RESOURCES: &str = "huawei.com/";

/// A kind of job whose strategy reaches ClusterD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::VariantArray)]
pub enum JobKind {
    AscendJob,
    #[strum(to_string = "Job.batch.volcano.sh")]
    VolcanoJob,
}

impl JobKind {
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::AscendJob => ("mindxdl.gitee.com", "v1", "AscendJob", "ascendjobs"),
            Self::VolcanoJob => ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// The job's own object.
#[derive(Debug, Clone)]
pub struct JobObject {
    pub kind: JobKind,
    pub object: DynamicObject,
}

/// A replica of the webhook, and what it shows.
#[derive(Debug, Clone)]
pub struct Replica {
    pub name: String,
    /// The version that `/metrics` names.
    pub version: Seen<Option<String>>,
    /// The served chain, PEM.
    pub certificate: Seen<String>,
}

/// A job that asks for a dump, or that was asked for by name.
#[derive(Debug, Clone)]
pub struct Job {
    pub namespace: String,
    pub name: String,
    pub object: Seen<JobObject>,
    /// Its Pods, by name.
    pub pods: Seen<Vec<Pod>>,
    pub group: Seen<DynamicObject>,
    pub reset_config: Seen<BTreeMap<String, String>>,
    /// ClusterD's own view of the job, `job-summary-<job>`.
    pub summary: Seen<BTreeMap<String, String>>,
    /// The Service of rank 0, by which other ranks reach MindIO's controller and the TaskD Manager.
    pub service: Seen<Service>,
    pub endpoints: Seen<Vec<EndpointSlice>>,
}

impl JobObject {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.object.labels().get(name).map(String::as_str)
    }

    /// The annotation `recover-strategy`, as it is written.
    pub fn strategy(&self) -> Option<&str> {
        self.object.annotations().get(RECOVER_STRATEGY).map(String::as_str)
    }

    /// Whether it asks for a dump, even in a spelling that MindCluster doesn't read.
    pub fn asks_for_dump(&self) -> bool {
        self.strategy().is_some_and(|strategy| Strategies::parse(strategy).tokens().contains(&"dump"))
    }

    /// Whether `dump` is all that acts.
    pub fn dumps_only(&self) -> bool {
        self.strategy().is_some_and(|strategy| Strategies::parse(strategy).is_dump_only())
    }

    /// Whether it has succeeded or failed permanently.
    pub fn is_finished(&self) -> bool {
        let status = &self.object.data["status"];
        match self.kind {
            JobKind::AscendJob => status["conditions"].as_array().into_iter().flatten().any(|condition| {
                matches!(condition["type"].as_str(), Some("Succeeded" | "Failed"))
                    && condition["status"] == "True"
            }),
            JobKind::VolcanoJob => {
                matches!(status["state"]["phase"].as_str(), Some("Completed" | "Failed" | "Terminated"))
            }
        }
    }

    /// The replica types with their number of Pods and their template's spec. Rank 0 is in the first.
    pub fn templates(&self) -> Vec<(String, i64, Option<PodSpec>)> {
        let spec = &self.object.data["spec"];
        let template = |name: String, replica: &Value| {
            let count = replica["replicas"].as_i64().unwrap_or(1);
            (name, count, serde_json::from_value(replica["template"]["spec"].clone()).ok())
        };
        match self.kind {
            JobKind::AscendJob => {
                let replicas = spec["replicaSpecs"].as_object().into_iter().flatten();
                let mut all: Vec<_> =
                    replicas.map(|(name, replica)| template(name.clone(), replica)).collect();
                all.sort_by_key(|(name, ..)| name == "Worker");
                all
            }
            JobKind::VolcanoJob => {
                let tasks = spec["tasks"].as_array().into_iter().flatten();
                let name = |task: &Value| task["name"].as_str().unwrap_or_default().to_owned();
                tasks.map(|task| template(name(task), task)).collect()
            }
        }
    }

    /// The name of the Service of rank 0 that ascend-operator makes; `None` for other kinds.
    pub fn service_name(&self) -> Option<String> {
        let first = self.templates().into_iter().next()?.0;
        (self.kind == JobKind::AscendJob)
            .then(|| format!("{}-{}-0", self.object.name_any(), first.to_lowercase()))
    }
}

impl Job {
    /// The name with its namespace.
    pub fn reference(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Its Pods that haven't ended; none if they aren't known.
    pub fn running_pods(&self) -> impl Iterator<Item = &Pod> {
        let has_ended = |pod: &Pod| matches!(phase(pod), "Succeeded" | "Failed");
        self.pods.read().into_iter().flatten().filter(move |pod| !has_ended(pod))
    }
}

/// The phase of a Pod.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The training container, chosen as the webhook does: of those that the annotation names, or of all, the one called `ascend`,
/// else the one that requests NPUs, else the first.
pub fn training_container<'a>(
    spec: &'a PodSpec,
    annotations: Option<&BTreeMap<String, String>>,
) -> Option<&'a Container> {
    let named = annotations.and_then(|annotations| annotations.get(CONTAINERS)).map_or("", String::as_str);
    let chosen: Vec<&str> = named.split(',').map(str::trim).collect();
    let mut candidates: Vec<&Container> =
        spec.containers.iter().filter(|container| chosen.contains(&container.name.as_str())).collect();
    if candidates.is_empty() {
        candidates.extend(&spec.containers);
    }
    let requests_npu = |container: &Container| {
        let resources = container.resources.as_ref();
        let lists = resources.into_iter().flat_map(|resources| [&resources.requests, &resources.limits]);
        lists.flatten().flatten().any(|(name, _)| name.starts_with(NPU_RESOURCES))
    };
    let mut of_name = candidates.iter().filter(|container| container.name == TRAINING);
    let mut with_npu = candidates.iter().filter(|container| requests_npu(container));
    of_name.next().or_else(|| with_npu.next()).or_else(|| candidates.first()).copied()
}
