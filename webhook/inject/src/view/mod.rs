//! Borrowed views: only the fields a decision needs, read from the raw object without copying.
//!
//! A view is never written back, which is what keeps unknown fields safe. Absent and `null` are told
//! apart ([`Slot`]), since the undo of an injection restores the one or the other; everything that
//! decides treats them alike.

mod affinity;
mod json;

use serde::Deserialize;
use serde::de::IgnoredAny;
use swansong_api::{annotations, labels};

pub use self::affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredTerm, Requirement,
};
use self::json::view;
pub use self::json::{Kept, Keys, Ordered, Slot, Text};
use crate::workload::WorkloadKind;

/// Keeps the annotations that decide: `recover-strategy` and Swansong's own.
#[derive(Debug)]
pub struct AnnotationKeys;

impl Keys for AnnotationKeys {
    fn keep(key: &str) -> bool {
        key == annotations::RECOVER_STRATEGY || key.starts_with(annotations::PREFIX)
    }
}

/// Keeps the labels that decide.
#[derive(Debug)]
pub struct LabelKeys;

impl Keys for LabelKeys {
    fn keep(key: &str) -> bool {
        matches!(key, labels::PROCESS_RECOVER_ENABLE | labels::REPLICA_TYPE | labels::VOLCANO_JOB_NAME)
            || key.starts_with("training.kubeflow.org/")
    }
}

/// Keeps what a nodeSelector says of the operating system and of readiness.
#[derive(Debug)]
pub struct NodeSelectorKeys;

impl Keys for NodeSelectorKeys {
    fn keep(key: &str) -> bool {
        matches!(key, "kubernetes.io/os" | labels::DUMP_READY)
    }
}

/// Keeps the NPU resources of a request or limit, whose values don't matter.
#[derive(Debug)]
pub struct NpuKeys;

impl Keys for NpuKeys {
    fn keep(key: &str) -> bool {
        key.starts_with("huawei.com/")
    }
}

/// Annotations as kept.
pub type Annotations<'a> = Kept<'a, AnnotationKeys, Slot<Text<'a>>>;
/// Labels as kept.
pub type Labels<'a> = Kept<'a, LabelKeys, Slot<Text<'a>>>;

view! {
    /// `metadata` of an object or template.
    pub struct Metadata<'a> {
        /// The object's name; absent before the API server makes one from `generateName`.
        pub name: "name" => Slot<Text<'a>>,
        /// The prefix for a name.
        pub generate_name: "generateName" => Slot<Text<'a>>,
        /// The namespace; often only in the request.
        pub namespace: "namespace" => Slot<Text<'a>>,
        /// Labels.
        pub labels: "labels" => Slot<Labels<'a>>,
        /// Annotations.
        pub annotations: "annotations" => Slot<Annotations<'a>>,
    }
}

impl Metadata<'_> {
    /// The value of an annotation; `null` counts as absent.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.present()?.get(key)?.present().map(|text| &**text)
    }

    /// Bytes of the annotations that decide.
    pub fn annotations_length(&self) -> usize {
        let members = self.annotations.present().map_or(&[][..], |annotations| &annotations.members);
        members.iter().map(|(key, value)| key.len() + value.present().map_or(0, |value| value.len())).sum()
    }

    /// Whether nothing but annotations is in it; empty labels are nothing.
    pub fn holds_annotations_at_most(&self) -> bool {
        let names = [&self.name, &self.generate_name, &self.namespace];
        self.unread == 0
            && names.into_iter().all(|name| *name == Slot::Absent)
            && self.labels.present().is_none_or(|labels| labels.len == 0)
    }

    /// The value of a label; `null` counts as absent.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.present()?.get(key)?.present().map(|text| &**text)
    }
}

view! {
    /// A pod template, or a Pod.
    pub struct Template<'a> {
        /// Only there when the object is a Pod.
        pub kind: "kind" => Slot<Text<'a>>,
        /// Metadata of the pods.
        pub metadata: "metadata" => Slot<Metadata<'a>>,
        /// The pods' spec.
        pub spec: "spec" => Slot<PodSpec<'a>>,
    }
}

view! {
    /// A pod's spec.
    pub struct PodSpec<'a> {
        /// Whether the pod shares the node's network.
        pub host_network: "hostNetwork" => Slot<bool>,
        /// The operating system the pod says it is for.
        pub os: "os" => Slot<Os<'a>>,
        /// The node the pod is on, or is put on without a scheduler.
        pub node_name: "nodeName" => Slot<Text<'a>>,
        /// Labels of the nodes the pod is scheduled to.
        pub node_selector: "nodeSelector" => Slot<Kept<'a, NodeSelectorKeys, Slot<Text<'a>>>>,
        /// Which nodes and neighbours the pod is drawn to.
        pub affinity: "affinity" => Slot<Affinity<'a>>,
        /// The containers.
        pub containers: "containers" => Slot<Vec<Container<'a>>>,
        /// Init containers, native sidecars among them.
        pub init_containers: "initContainers" => Slot<Vec<Container<'a>>>,
    }
}

view! {
    /// `spec.os`.
    pub struct Os<'a> {
        /// `linux` or `windows`.
        pub name: "name" => Slot<Text<'a>>,
    }
}

view! {
    /// A container.
    pub struct Container<'a> {
        /// Unique in the pod.
        pub name: "name" => Slot<Text<'a>>,
        /// The image reference.
        pub image: "image" => Slot<Text<'a>>,
        /// `Always` makes an init container a native sidecar.
        pub restart_policy: "restartPolicy" => Slot<Text<'a>>,
        /// Environment variables; the last of a name wins.
        pub env: "env" => Slot<Vec<EnvVar<'a>>>,
        /// Sources of further variables, unseen here.
        pub env_from: "envFrom" => Slot<Vec<IgnoredAny>>,
        /// Declared ports.
        pub ports: "ports" => Slot<Vec<ContainerPort<'a>>>,
        /// Requested resources.
        pub resources: "resources" => Slot<Resources<'a>>,
    }
}

impl Container<'_> {
    /// The name, empty when there is none.
    pub fn name(&self) -> &str {
        self.name.present().map_or("", |name| name)
    }

    /// The value that wins for an environment variable; `None` when unset or from a valueFrom.
    pub fn env_value(&self, name: &str) -> Option<&str> {
        self.last_env(name)?.1.value.present().map(|value| &**value)
    }

    /// The entry of that name that wins, with its index.
    pub fn last_env(&self, name: &str) -> Option<(usize, &EnvVar<'_>)> {
        self.env.items().iter().enumerate().rev().find(|(_, entry)| entry.name() == name)
    }

    /// The number of the TCP port declared under `name`.
    pub fn tcp_port_named(&self, name: &str) -> Option<u16> {
        let mut ports = self.ports.items().iter().filter(|port| port.is_tcp_protocol());
        let port = ports.find(|port| port.name.present().is_some_and(|it| **it == *name))?;
        u16::try_from(*port.container_port.present()?).ok().filter(|number| *number > 0)
    }

    /// Whether the container asks for an NPU.
    pub fn wants_npu(&self) -> bool {
        self.resources.present().is_some_and(|resources| {
            [&resources.limits, &resources.requests]
                .into_iter()
                .any(|list| list.present().is_some_and(|kept| !kept.members.is_empty()))
        })
    }

    /// Whether an init container is a native sidecar.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.present().is_some_and(|policy| &**policy == "Always")
    }
}

view! {
    /// `resources` of a container; quantities are never read.
    pub struct Resources<'a> {
        /// Upper limits.
        pub limits: "limits" => Slot<Kept<'a, NpuKeys, IgnoredAny>>,
        /// Requests.
        pub requests: "requests" => Slot<Kept<'a, NpuKeys, IgnoredAny>>,
    }
}

view! {
    /// An environment variable.
    pub struct EnvVar<'a> {
        /// Its name.
        pub name: "name" => Slot<Text<'a>>,
        /// Its literal value.
        pub value: "value" => Slot<Text<'a>>,
        /// Its source, when not literal.
        pub value_from: "valueFrom" => Slot<IgnoredAny>,
    }
}

impl EnvVar<'_> {
    /// The name, empty when there is none.
    pub fn name(&self) -> &str {
        self.name.present().map_or("", |name| name)
    }
}

view! {
    /// A declared port.
    pub struct ContainerPort<'a> {
        /// Its name, unique in the container.
        pub name: "name" => Slot<Text<'a>>,
        /// Its number in the pod.
        pub container_port: "containerPort" => Slot<i64>,
        /// TCP when absent.
        pub protocol: "protocol" => Slot<Text<'a>>,
    }
}

impl ContainerPort<'_> {
    /// Whether this is TCP port `number`.
    pub fn is_tcp(&self, number: u16) -> bool {
        self.container_port.present() == Some(&i64::from(number)) && self.is_tcp_protocol()
    }

    /// Whether the protocol is TCP, also by default.
    pub fn is_tcp_protocol(&self) -> bool {
        self.protocol.present().is_none_or(|protocol| &**protocol == "TCP")
    }
}

view! {
    /// A workload other than a Pod.
    pub struct Workload<'a> {
        /// The kind the object gives itself.
        pub kind: "kind" => Slot<Text<'a>>,
        /// The job's own metadata.
        pub metadata: "metadata" => Slot<Metadata<'a>>,
        /// The spec, of whichever kind.
        pub spec: "spec" => Slot<WorkloadSpec<'a>>,
    }
}

view! {
    /// The places where the supported kinds keep pod templates.
    pub struct WorkloadSpec<'a> {
        /// AscendJob.
        pub replica_specs: "replicaSpecs" => Slot<Ordered<'a, Slot<Holder<'a>>>>,
        /// Volcano Job.
        pub tasks: "tasks" => Slot<Vec<Holder<'a>>>,
        /// Deployment, StatefulSet, Job.
        pub template: "template" => Slot<Template<'a>>,
        /// CronJob.
        pub job_template: "jobTemplate" => Slot<JobTemplate<'a>>,
        /// How many pods a Deployment or StatefulSet keeps.
        pub replicas: "replicas" => Slot<i64>,
        /// How many pods a Job runs at once.
        pub parallelism: "parallelism" => Slot<i64>,
    }
}

view! {
    /// Anything with a `template`.
    pub struct Holder<'a> {
        /// The pod template.
        pub template: "template" => Slot<Template<'a>>,
        /// How many pods a replica type or task has.
        pub replicas: "replicas" => Slot<i64>,
        /// How many pods the Job of a CronJob runs at once.
        pub parallelism: "parallelism" => Slot<i64>,
    }
}

view! {
    /// `spec.jobTemplate` of a CronJob.
    pub struct JobTemplate<'a> {
        /// The Job's spec.
        pub spec: "spec" => Slot<Holder<'a>>,
    }
}

/// An object of a supported kind.
#[derive(Debug)]
pub enum Object<'a> {
    /// A Pod is its own template.
    Pod(Box<Template<'a>>),
    /// Any other kind.
    Workload(Box<Workload<'a>>),
}

/// The object isn't of the shape its kind has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}`: {message}")]
pub struct ShapeError {
    /// The field, as `spec.containers[0].env`; `.` is the object itself.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl<'a> Object<'a> {
    /// Reads `json`, which the caller knows to be of `kind`.
    pub fn parse(kind: WorkloadKind, json: &'a str) -> Result<Self, ShapeError> {
        if kind == WorkloadKind::Pod {
            parse(json).map(|pod| Self::Pod(Box::new(pod)))
        } else {
            parse(json).map(|workload| Self::Workload(Box::new(workload)))
        }
    }

    /// The object's own metadata.
    pub fn metadata(&self) -> &Slot<Metadata<'a>> {
        match self {
            Self::Pod(pod) => &pod.metadata,
            Self::Workload(workload) => &workload.metadata,
        }
    }

    /// Whether the object names its kind.
    pub fn names_its_kind(&self) -> bool {
        let kind = match self {
            Self::Pod(pod) => &pod.kind,
            Self::Workload(workload) => &workload.kind,
        };
        kind.present().is_some_and(|kind| !kind.is_empty())
    }
}

/// Reads `json`; only a failure pays for finding out where it was.
fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, ShapeError> {
    serde_json::from_str(json).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Err(located) => ShapeError {
                field: located.path().to_string(),
                message: in_plain_words(&located.inner().to_string()),
            },
            // Trailing characters after a whole value: nothing inside it is to blame.
            Ok(_) => ShapeError { field: ".".to_owned(), message: error.to_string() },
        }
    })
}

/// serde_json ends its messages with a position in the JSON text, which the user never saw, and names types as Rust does.
fn in_plain_words(message: &str) -> String {
    let text = message.rsplit_once(" at line ").map_or(message, |(text, _)| text);
    text.replace("expected i64", "expected a whole number")
}
