//! Borrowed views of the raw object, with only the fields that a decision needs.
//!
//! A view is never written back, so unknown fields are safe. [`Slot`] distinguishes absent from `null` members, because
//! an undo restores them; decisions treat both alike.

mod affinity;
mod json;
mod volume;

use serde::Deserialize;
use serde::de::IgnoredAny;
use swansong_api::{annotations, labels};

pub use self::affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredTerm, Requirement,
};
use self::json::view;
pub use self::json::{Kept, Keys, Ordered, Quantity, Slot, Text};
pub use self::volume::{DownwardApi, DownwardApiFile, Volume, VolumeMount};
use crate::kind::WorkloadKind;
use crate::spelling;

/// Keeps `recover-strategy` and Swansong's own annotations.
#[derive(Debug)]
pub struct AnnotationKeys;

impl Keys for AnnotationKeys {
    fn keep(key: &str) -> bool {
        key.starts_with(annotations::PREFIX)
            || matches!(key, annotations::MIRROR_POD | annotations::JOB_COMPLETION_INDEX)
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

/// Keeps the NPU resources of a request or limit.
#[derive(Debug)]
pub struct NpuKeys;

impl Keys for NpuKeys {
    fn keep(key: &str) -> bool {
        key.starts_with("huawei.com/")
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

view! {
    pub struct Container<'a> {
        /// Unique in the pod.
        pub name: "name" => Slot<Text<'a>>,
        /// The image reference.
        pub image: "image" => Slot<Text<'a>>,
        /// `Always` makes an init container a native sidecar.
        pub restart_policy: "restartPolicy" => Slot<Text<'a>>,
        /// Environment variables; the last one of a name is effective.
        pub env: "env" => Slot<Vec<EnvVar<'a>>>,
        /// Sources of further variables, whose content is unknown here.
        pub env_from: "envFrom" => Slot<Vec<IgnoredAny>>,
        /// The declared ports.
        pub ports: "ports" => Slot<Vec<ContainerPort<'a>>>,
        /// The requested resources.
        pub resources: "resources" => Slot<Resources<'a>>,
        /// Where volumes are mounted.
        pub volume_mounts: "volumeMounts" => Slot<Vec<VolumeMount<'a>>>,
    }
}

impl Container<'_> {
    /// The name, empty when there is none.
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// The effective value of an environment variable; `None` if unset or from a valueFrom.
    pub fn env_value(&self, name: &str) -> Option<&str> {
        self.last_env(name)?.1.value.present().map(|value| &**value)
    }

    /// The effective entry of that name, with its index.
    pub fn last_env(&self, name: &str) -> Option<(usize, &EnvVar<'_>)> {
        self.env.items().iter().enumerate().rev().find(|(_, entry)| entry.name() == name)
    }

    /// The number of the TCP port declared under `name`.
    pub fn tcp_port_named(&self, name: &str) -> Option<u16> {
        let mut ports = self.ports.items().iter().filter(|port| port.is_tcp_protocol());
        let port = ports.find(|port| port.name.present().is_some_and(|it| **it == *name))?;
        u16::try_from(*port.container_port.present()?).ok().filter(|number| *number > 0)
    }

    /// Whether the container requests an NPU.
    pub fn requests_npu(&self) -> bool {
        self.resources.present().is_some_and(|resources| {
            [&resources.limits, &resources.requests].into_iter().any(|list| {
                list.present()
                    .is_some_and(|kept| kept.members.iter().any(|(_, quantity)| quantity.is_positive))
            })
        })
    }

    /// Whether an init container is a native sidecar.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.present().is_some_and(|policy| &**policy == "Always")
    }
}

view! {
    /// View of `resources` of a container.
    pub struct Resources<'a> {
        /// Limits of NPUs.
        pub limits: "limits" => Slot<Kept<'a, NpuKeys, Quantity>>,
        /// Requests for NPUs.
        pub requests: "requests" => Slot<Kept<'a, NpuKeys, Quantity>>,
    }
}

view! {
    /// View of an environment variable.
    pub struct EnvVar<'a> {
        /// The variable's name.
        pub name: "name" => Slot<Text<'a>>,
        /// Its literal value.
        pub value: "value" => Slot<Text<'a>>,
        /// Its source, when not literal.
        pub value_from: "valueFrom" => Slot<ValueFrom<'a>>,
    }

    /// View of the source of an environment variable.
    pub struct ValueFrom<'a> {
        pub config_map_key_ref: "configMapKeyRef" => Slot<KeyRef<'a>>,
        pub secret_key_ref: "secretKeyRef" => Slot<KeyRef<'a>>,
        /// A field of the Pod.
        pub field_ref: "fieldRef" => Slot<FieldRef<'a>>,
    }

    /// View of a reference to a key.
    pub struct KeyRef<'a> {
        /// Whether the variable is omitted if the key is missing.
        pub optional: "optional" => Slot<bool>,
    }

    /// View of a reference to a field of the Pod.
    pub struct FieldRef<'a> {
        /// Version of the path; `v1` by default.
        pub api_version: "apiVersion" => Slot<Text<'a>>,
        pub field_path: "fieldPath" => Slot<Text<'a>>,
    }
}

impl ValueFrom<'_> {
    /// Whether the variable may be missing.
    pub fn is_optional(&self) -> bool {
        let references = [&self.config_map_key_ref, &self.secret_key_ref];
        references.into_iter().any(|reference| {
            reference.present().is_some_and(|reference| reference.optional.present() == Some(&true))
        })
    }

    /// Whether it is the field at `path`.
    pub fn is_field(&self, path: &str) -> bool {
        self.field_ref.present().is_some_and(|field| field.is_field(path))
    }
}

impl FieldRef<'_> {
    /// Whether it is the field at `path`.
    pub fn is_field(&self, path: &str) -> bool {
        self.unread == 0
            && self.field_path.text() == path
            && self.api_version.present().is_none_or(|version| &**version == "v1")
    }
}

impl EnvVar<'_> {
    /// The name, empty when there is none.
    pub fn name(&self) -> &str {
        self.name.text()
    }
}

view! {
    /// View of a declared port.
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
    /// View of a workload other than a Pod.
    pub struct Workload<'a> {
        /// The object's kind.
        pub kind: "kind" => Slot<Text<'a>>,
        /// The job's own metadata.
        pub metadata: "metadata" => Slot<Metadata<'a>>,
        /// The job's spec.
        pub spec: "spec" => Slot<WorkloadSpec<'a>>,
    }
}

view! {
    /// The fields in which the supported kinds have pod templates.
    pub struct WorkloadSpec<'a> {
        /// Replica types of an AscendJob.
        pub replica_specs: "replicaSpecs" => Slot<Ordered<'a, Slot<Holder<'a>>>>,
        /// Tasks of a Volcano Job.
        pub tasks: "tasks" => Slot<Vec<Holder<'a>>>,
        /// Template of a Deployment, StatefulSet or Job.
        pub template: "template" => Slot<Template<'a>>,
        /// Job template of a CronJob.
        pub job_template: "jobTemplate" => Slot<JobTemplate<'a>>,
        /// Number of pods of a Deployment or StatefulSet.
        pub replicas: "replicas" => Slot<i64>,
        /// Number of pods that a Job runs at a time.
        pub parallelism: "parallelism" => Slot<i64>,
        /// How an AscendJob ends.
        pub run_policy: "runPolicy" => Slot<RunPolicy<'a>>,
    }
}

view! {
    /// View of `spec.runPolicy` of an AscendJob.
    pub struct RunPolicy<'a> {
        /// Which Pods are deleted when the job has ended.
        pub clean_pod_policy: "cleanPodPolicy" => Slot<Text<'a>>,
    }
}

view! {
    /// View of an object with a `template`.
    pub struct Holder<'a> {
        /// The name of a task.
        pub name: "name" => Slot<Text<'a>>,
        /// The pod template.
        pub template: "template" => Slot<Template<'a>>,
        /// Number of pods of a replica type or task.
        pub replicas: "replicas" => Slot<i64>,
        /// How many pods the Job of a CronJob runs at a time.
        pub parallelism: "parallelism" => Slot<i64>,
    }
}

view! {
    /// View of `spec.jobTemplate` of a CronJob.
    pub struct JobTemplate<'a> {
        pub spec: "spec" => Slot<Holder<'a>>,
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
