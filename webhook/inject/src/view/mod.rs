//! Borrowed views of the raw object, with only the fields that a decision needs.
//!
//! A view is never written back, so unknown fields are safe. [`Slot`] distinguishes absent from `null` members, because
//! an undo restores them; decisions treat both alike.

mod affinity;
mod container;
mod json;
mod volume;
mod workload;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer};
use swansong_api::{annotations, labels};

pub use self::affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredTerm, Requirement,
};
pub use self::container::{
    Container, ContainerPort, EnvVar, FieldRef, KeyRef, NpuKeys, Resources, ValueFrom,
};
use self::json::view;
pub use self::json::{Kept, Keys, Ordered, Quantity, Slot, Text};
pub use self::volume::{DownwardApi, DownwardApiFile, Volume, VolumeMount};
pub use self::workload::{Holder, JobTemplate, RunPolicy, Workload, WorkloadSpec};
use crate::kind::WorkloadKind;
use crate::spelling;

/// Keeps `recover-strategy` and Swansong's own annotations.
#[derive(Debug)]
pub struct AnnotationKeys;

impl Keys for AnnotationKeys {
    fn keep(key: &str) -> bool {
        spelling::is_option(key)
            || key == annotations::MIRROR_POD
            || labels::POD_INDICES.contains(&key)
            || labels::OF_VOLCANO.contains(&key)
            || spelling::resembles_strategy(key)
    }
}

/// Keeps the labels that affect the injection.
#[derive(Debug)]
pub struct LabelKeys;

impl Keys for LabelKeys {
    fn keep(key: &str) -> bool {
        const NAMES: [&str; 5] = [
            labels::PROCESS_RECOVER_ENABLE,
            labels::REPLICA_TYPE,
            labels::FAULT_SCHEDULING,
            labels::SUB_HEALTHY_STRATEGY,
            labels::FRAMEWORK,
        ];
        NAMES.contains(&key)
            || key.starts_with("training.kubeflow.org/")
            || spelling::is_option(key)
            || key == labels::STATEFUL_SET_POD_NAME
            || labels::POD_INDICES.contains(&key)
            || labels::OF_VOLCANO.contains(&key)
            || spelling::resembles_strategy(key)
    }
}

/// Keeps the labels of the operating system and of readiness.
#[derive(Debug)]
pub struct NodeSelectorKeys;

impl Keys for NodeSelectorKeys {
    fn keep(key: &str) -> bool {
        matches!(key, "kubernetes.io/os" | labels::DUMP_READY)
    }
}

pub type Annotations<'a> = Kept<'a, AnnotationKeys, Slot<Text<'a>>>;
pub type Labels<'a> = Kept<'a, LabelKeys, Slot<Text<'a>>>;

view! {
    /// View of `metadata` of an object or template.
    pub struct Metadata<'a> {
        /// The object's name; absent before the API server makes one from `generateName`.
        pub name: "name" => Slot<Text<'a>>,
        /// The prefix for a name.
        pub generate_name: "generateName" => Slot<Text<'a>>,
        /// The namespace; often only in the request.
        pub namespace: "namespace" => Slot<Text<'a>>,
        /// The object's labels.
        pub labels: "labels" => Slot<Labels<'a>>,
        /// The object's annotations.
        pub annotations: "annotations" => Slot<Annotations<'a>>,
    }
}

impl Metadata<'_> {
    /// The value of an annotation; `null` counts as absent.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.present()?.get(key)?.present().map(|text| &**text)
    }

    /// Bytes of all annotations, as the API server counts them.
    pub fn total_annotations_length(&self) -> usize {
        self.annotations_length()
            + self.annotations.present().map_or(0, |annotations| annotations.other_bytes)
    }

    /// Bytes of the kept annotations.
    pub fn annotations_length(&self) -> usize {
        let members = self.annotations.present().map_or(&[][..], |annotations| &annotations.members);
        members.iter().map(|(key, value)| key.len() + value.present().map_or(0, |value| value.len())).sum()
    }

    /// Whether it has no members except annotations and empty labels.
    pub fn has_only_annotations(&self) -> bool {
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
    /// View of a pod template or a Pod.
    pub struct Template<'a> {
        /// Present in a Pod only.
        pub kind: "kind" => Slot<Text<'a>>,
        /// Metadata of the pods.
        pub metadata: "metadata" => Slot<Metadata<'a>>,
        pub spec: "spec" => Slot<PodSpec<'a>>,
    }
}

impl Template<'_> {
    /// Whether a container requests an NPU.
    pub fn requests_npu(&self) -> bool {
        self.spec.present().is_some_and(|spec| spec.containers.items().iter().any(Container::requests_npu))
    }
}

view! {
    pub struct PodSpec<'a> {
        /// Whether the pod shares the node's network.
        pub host_network: "hostNetwork" => Slot<bool>,
        /// The pod's operating system.
        pub os: "os" => Slot<Os<'a>>,
        /// The pod's node, also before scheduling.
        pub node_name: "nodeName" => Slot<Text<'a>>,
        /// Required labels of the pod's node.
        pub node_selector: "nodeSelector" => Slot<Kept<'a, NodeSelectorKeys, Slot<Text<'a>>>>,
        /// Affinity to nodes and pods.
        pub affinity: "affinity" => Slot<Affinity<'a>>,
        pub containers: "containers" => Slot<Vec<Container<'a>>>,
        /// Init containers, including native sidecars.
        pub init_containers: "initContainers" => Slot<Vec<Container<'a>>>,
        /// Seconds from SIGTERM to SIGKILL; 30 by default.
        pub termination_grace: "terminationGracePeriodSeconds" => Slot<i64>,
        /// The pod's volumes.
        pub volumes: "volumes" => Slot<Vec<Volume<'a>>>,
    }
}

view! {
    /// View of `spec.os`.
    pub struct Os<'a> {
        /// `linux` or `windows`.
        pub name: "name" => Slot<Text<'a>>,
    }
}

/// An object of a supported kind.
#[derive(Debug)]
pub enum Object<'a> {
    /// A Pod is its own template.
    Pod(Box<Template<'a>>),
    /// A workload of another kind.
    Workload(Box<Workload<'a>>),
}

/// A field of the object has the wrong type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}`: {message}")]
pub struct ShapeError {
    /// The field, as `spec.containers[0].env`; `.` is the object itself.
    pub field: String,
    /// What is wrong with the field.
    pub message: String,
}

/// Reads an object of a kind; `None` for `null`.
#[derive(Debug, Clone, Copy)]
pub struct ObjectOf(pub WorkloadKind);

impl<'de> DeserializeSeed<'de> for ObjectOf {
    type Value = Option<Object<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0 == WorkloadKind::Pod {
            Ok(Option::deserialize(deserializer)?.map(Object::Pod))
        } else {
            Ok(Option::deserialize(deserializer)?.map(Object::Workload))
        }
    }
}

impl<'a> Object<'a> {
    /// Reads `json` as an object of `kind`.
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

    /// Whether the object has a kind.
    pub fn has_kind(&self) -> bool {
        let kind = match self {
            Self::Pod(pod) => &pod.kind,
            Self::Workload(workload) => &workload.kind,
        };
        kind.present().is_some_and(|kind| !kind.is_empty())
    }
}

/// Reads `json`; parses it again to locate a failure.
fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, ShapeError> {
    serde_json::from_str(json).map_err(|error| {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Err(located) => ShapeError {
                field: located.path().to_string(),
                message: describe(&located.inner().to_string()),
            },
            // The error is after the value, not inside it.
            Ok(_) => ShapeError { field: ".".to_owned(), message: error.to_string() },
        }
    })
}

/// A message of serde_json without the position in the JSON text, which the user doesn't have, and without Rust's names.
fn describe(message: &str) -> String {
    let text = message.rsplit_once(" at line ").map_or(message, |(text, _)| text);
    text.replace("expected i64", "expected a whole number")
}
