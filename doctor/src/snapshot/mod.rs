//! What was read, as plain data.

mod agent;
mod job;

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use swansong_api::node::{REHEARSAL, RehearsalResult};

pub use self::agent::{
    AgentCheck, AgentFault, AgentFaults, AgentStatus, ContainerVerdict, Discovery, HookVerdict, ImageFinding,
    ImageReport, PodVerdict, Preload,
};
pub use self::job::{Job, JobKind, JobObject, Replica, TRAINING, phase, training_container};

/// The result of reading something.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen<T> {
    /// It was read.
    Read(T),
    /// It doesn't exist.
    Absent,
    /// The client may not read it; the API server's message names the missing right.
    Forbidden(String),
    /// It couldn't be read.
    Failed(String),
    /// It wasn't asked for.
    NotAsked,
}

impl<T> Seen<T> {
    /// What was read; `None` also if it may exist.
    pub const fn read(&self) -> Option<&T> {
        if let Self::Read(value) = self { Some(value) } else { None }
    }

    /// What was read, `None` if it doesn't exist.
    ///
    /// # Errors
    ///
    /// A sentence that says why it isn't known.
    pub fn known(&self) -> Result<Option<&T>, String> {
        match self {
            Self::Read(value) => Ok(Some(value)),
            Self::Absent => Ok(None),
            Self::Forbidden(message) => Err(format!("may not be read: {message}")),
            Self::Failed(message) => Err(format!("couldn't be read: {message}")),
            Self::NotAsked => Err("wasn't read".to_owned()),
        }
    }

    /// The same with a reference to what was read.
    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Self::Read(value) => Seen::Read(value),
            Self::Absent => Seen::Absent,
            Self::Forbidden(message) => Seen::Forbidden(message.clone()),
            Self::Failed(message) => Seen::Failed(message.clone()),
            Self::NotAsked => Seen::NotAsked,
        }
    }

    /// What `find` finds in what was read; it doesn't exist if that is nothing.
    pub fn find<U>(self, find: impl FnOnce(T) -> Option<U>) -> Seen<U> {
        match self.map(find) {
            Seen::Read(Some(value)) => Seen::Read(value),
            Seen::Read(None) | Seen::Absent => Seen::Absent,
            Seen::Forbidden(message) => Seen::Forbidden(message),
            Seen::Failed(message) => Seen::Failed(message),
            Seen::NotAsked => Seen::NotAsked,
        }
    }

    /// The same, but that it doesn't exist isn't known.
    #[must_use]
    pub fn or_unknown(self) -> Self {
        if matches!(self, Self::Absent) { Self::NotAsked } else { self }
    }

    /// Converts what was read.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Self::Read(value) => Seen::Read(convert(value)),
            Self::Absent => Seen::Absent,
            Self::Forbidden(message) => Seen::Forbidden(message),
            Self::Failed(message) => Seen::Failed(message),
            Self::NotAsked => Seen::NotAsked,
        }
    }
}

/// Everything that the checks read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When it was taken, in milliseconds since 1970, by this machine's clock.
    pub taken_at: u64,
    /// `None` if only jobs or nodes were asked for.
    pub installation: Option<Installation>,
    pub cluster: Option<Cluster>,
    pub jobs: Vec<Job>,
    pub nodes: Vec<NodeSnapshot>,
}

/// Swansong's own objects.
#[derive(Debug, Clone)]
pub struct Installation {
    pub configuration: Seen<MutatingWebhookConfiguration>,
    pub deployment: Seen<Deployment>,
    pub endpoints: Seen<Vec<EndpointSlice>>,
    /// The HTTP status that the webhook's Service answered with, through the API server.
    pub service_answer: Seen<u16>,
    /// By the name of each webhook Pod.
    pub replicas: Seen<Vec<Replica>>,
    /// Names of the admission policies that have a binding.
    pub policies: Seen<Vec<String>>,
    pub agents: Seen<DaemonSet>,
}

/// MindCluster's own objects.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Which of ClusterD's namespaces exist.
    pub namespaces: Seen<Vec<String>>,
    pub clusterd: Seen<Vec<EndpointSlice>>,
    /// The images of ClusterD's Pods.
    pub clusterd_images: Seen<Vec<String>>,
    pub cluster_info: Seen<ConfigMap>,
    /// The state of each of Volcano's queues, by name.
    pub queues: Seen<BTreeMap<String, String>>,
}

/// A node, and what its agent says.
#[derive(Debug, Clone)]
pub struct NodeSnapshot {
    pub name: String,
    pub node: Seen<Node>,
    /// The device plugin's ConfigMap.
    pub device_info: Seen<ConfigMap>,
    /// The agent's Pod.
    pub agent: Seen<Pod>,
    pub status: Seen<AgentStatus>,
}

impl NodeSnapshot {
    /// Status, reason and message of a condition.
    pub fn condition(&self, name: &str) -> Option<&k8s_openapi::api::core::v1::NodeCondition> {
        let conditions = self.node.read()?.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.type_ == name)
    }

    /// An annotation of the Node.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.node.read()?.annotations().get(name).map(String::as_str)
    }
}

impl Snapshot {
    /// The node of this name, if it was read.
    pub fn node(&self, name: &str) -> Option<&NodeSnapshot> {
        let index = self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()?;
        self.nodes.get(index)
    }
}

/// The result of the last rehearsal of a node or job.
pub fn last_rehearsal(metadata: &ObjectMeta) -> Option<RehearsalResult> {
    serde_json::from_str(metadata.annotations.as_ref()?.get(REHEARSAL)?).ok()
}

/// How many of the endpoints are ready.
pub fn ready_endpoints(slices: &[EndpointSlice]) -> usize {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
    let is_ready = |condition: Option<bool>| condition != Some(false);
    endpoints
        .filter(|endpoint| endpoint.conditions.as_ref().is_none_or(|conditions| is_ready(conditions.ready)))
        .map(|endpoint| endpoint.addresses.len())
        .sum()
}
