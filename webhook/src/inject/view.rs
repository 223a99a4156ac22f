//! Borrowed views: only the fields a decision needs, read from the raw object without copying.
//!
//! A view is never written back, which is what keeps unknown fields safe. Absent and `null` are told
//! apart ([`Slot`]), since the undo of an injection restores the one or the other; everything that
//! decides treats them alike.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::strategy;
use crate::workload::WorkloadKind;

/// A field that may be absent, `null` or there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slot<T> {
    /// The object has no such member.
    #[default]
    Absent,
    /// The member is `null`.
    Null,
    /// The member has a value.
    Present(T),
}

impl<T> Slot<T> {
    /// The value, if there is one.
    pub const fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }
}

impl<T> Slot<Vec<T>> {
    /// The items; none when absent or `null`.
    pub fn items(&self) -> &[T] {
        self.present().map_or(&[], Vec::as_slice)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Slot<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Null, Self::Present))
    }
}

/// A string, borrowed unless it holds escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A JSON object of which only some members are kept, in its own order.
#[derive(Debug)]
pub struct Kept<'a, K, V> {
    /// The members whose key `K` keeps.
    members: Vec<(Text<'a>, V)>,
    /// How many members there are in all.
    pub len: usize,
    keys: PhantomData<K>,
}

/// Which keys of a map are of interest.
pub trait Keys {
    /// Whether the member is kept.
    fn keep(key: &str) -> bool;
}

impl<K, V> Kept<'_, K, V> {
    /// The last member named `key`.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.members.iter().rev().find(|(name, _)| &**name == key).map(|(_, value)| value)
    }
}

impl<'de: 'a, 'a, K: Keys, V: Deserialize<'de>> Deserialize<'de> for Kept<'a, K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeptVisitor<K, V>(PhantomData<(K, V)>);
        impl<'de, K: Keys, V: Deserialize<'de>> Visitor<'de> for KeptVisitor<K, V> {
            type Value = Kept<'de, K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut kept = Kept { members: Vec::new(), len: 0, keys: PhantomData };
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    kept.len += 1;
                    if K::keep(&key) {
                        kept.members.push((key, map.next_value()?));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(kept)
            }
        }
        deserializer.deserialize_map(KeptVisitor(PhantomData))
    }
}

/// Keeps the annotations that decide: `recover-strategy` and Swansong's own.
#[derive(Debug)]
pub struct AnnotationKeys;

impl Keys for AnnotationKeys {
    fn keep(key: &str) -> bool {
        key == strategy::ANNOTATION || key.starts_with("swansong.dev/")
    }
}

/// The label of the PodGroup that lets ClusterD recover the job.
pub const PROCESS_RECOVER_LABEL: &str = "process-recover-enable";

/// Keeps the labels that decide.
#[derive(Debug)]
pub struct LabelKeys;

impl Keys for LabelKeys {
    fn keep(key: &str) -> bool {
        matches!(key, PROCESS_RECOVER_LABEL | "replica-type" | "volcano.sh/job-name")
            || key.starts_with("training.kubeflow.org/")
    }
}

/// Keeps the operating system of a nodeSelector.
#[derive(Debug)]
pub struct NodeSelectorKeys;

impl Keys for NodeSelectorKeys {
    fn keep(key: &str) -> bool {
        key == "kubernetes.io/os"
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

/// `metadata` of an object or template.
#[derive(Debug, Deserialize)]
pub struct Metadata<'a> {
    /// The object's name; absent before the API server makes one from `generateName`.
    #[serde(borrow, default)]
    pub name: Slot<Text<'a>>,
    /// The prefix for a name.
    #[serde(borrow, default, rename = "generateName")]
    pub generate_name: Slot<Text<'a>>,
    /// The namespace; often only in the request.
    #[serde(borrow, default)]
    pub namespace: Slot<Text<'a>>,
    /// Labels.
    #[serde(borrow, default)]
    pub labels: Slot<Labels<'a>>,
    /// Annotations.
    #[serde(borrow, default)]
    pub annotations: Slot<Annotations<'a>>,
}

impl Metadata<'_> {
    /// The value of an annotation; `null` counts as absent.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.present()?.get(key)?.present().map(|text| &**text)
    }

    /// The value of a label; `null` counts as absent.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.present()?.get(key)?.present().map(|text| &**text)
    }
}

/// A pod template, or a Pod.
#[derive(Debug, Deserialize)]
pub struct Template<'a> {
    /// Only there when the object is a Pod.
    #[serde(borrow, default)]
    pub kind: Slot<Text<'a>>,
    /// Metadata of the pods.
    #[serde(borrow, default)]
    pub metadata: Slot<Metadata<'a>>,
    /// The pods' spec.
    #[serde(borrow, default)]
    pub spec: Slot<PodSpec<'a>>,
}

/// A pod's spec.
#[derive(Debug, Deserialize)]
pub struct PodSpec<'a> {
    /// Whether the pod shares the node's network.
    #[serde(default, rename = "hostNetwork")]
    pub host_network: Slot<bool>,
    /// The operating system the pod says it is for.
    #[serde(borrow, default)]
    pub os: Slot<Os<'a>>,
    /// The operating system the pod is scheduled to.
    #[serde(borrow, default, rename = "nodeSelector")]
    pub node_selector: Slot<Kept<'a, NodeSelectorKeys, Slot<Text<'a>>>>,
    /// The containers.
    #[serde(borrow, default)]
    pub containers: Slot<Vec<Container<'a>>>,
    /// Init containers, native sidecars among them.
    #[serde(borrow, default, rename = "initContainers")]
    pub init_containers: Slot<Vec<Container<'a>>>,
}

/// `spec.os`.
#[derive(Debug, Deserialize)]
pub struct Os<'a> {
    /// `linux` or `windows`.
    #[serde(borrow, default)]
    pub name: Slot<Text<'a>>,
}

/// A container.
#[derive(Debug, Deserialize)]
pub struct Container<'a> {
    /// Unique in the pod.
    #[serde(borrow, default)]
    pub name: Slot<Text<'a>>,
    /// The image reference.
    #[serde(borrow, default)]
    pub image: Slot<Text<'a>>,
    /// `Always` makes an init container a native sidecar.
    #[serde(borrow, default, rename = "restartPolicy")]
    pub restart_policy: Slot<Text<'a>>,
    /// Environment variables; the last of a name wins.
    #[serde(borrow, default)]
    pub env: Slot<Vec<EnvVar<'a>>>,
    /// Sources of further variables, unseen here.
    #[serde(default, rename = "envFrom")]
    pub env_from: Slot<Vec<IgnoredAny>>,
    /// Declared ports.
    #[serde(borrow, default)]
    pub ports: Slot<Vec<ContainerPort<'a>>>,
    /// Requested resources.
    #[serde(borrow, default)]
    pub resources: Slot<Resources<'a>>,
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

/// `resources` of a container; quantities are never read.
#[derive(Debug, Deserialize)]
pub struct Resources<'a> {
    /// Upper limits.
    #[serde(borrow, default)]
    pub limits: Slot<Kept<'a, NpuKeys, IgnoredAny>>,
    /// Requests.
    #[serde(borrow, default)]
    pub requests: Slot<Kept<'a, NpuKeys, IgnoredAny>>,
}

/// An environment variable.
#[derive(Debug, Deserialize)]
pub struct EnvVar<'a> {
    /// Its name.
    #[serde(borrow, default)]
    pub name: Slot<Text<'a>>,
    /// Its literal value.
    #[serde(borrow, default)]
    pub value: Slot<Text<'a>>,
    /// Its source, when not literal.
    #[serde(default, rename = "valueFrom")]
    pub value_from: Slot<IgnoredAny>,
}

impl EnvVar<'_> {
    /// The name, empty when there is none.
    pub fn name(&self) -> &str {
        self.name.present().map_or("", |name| name)
    }
}

/// A declared port.
#[derive(Debug, Deserialize)]
pub struct ContainerPort<'a> {
    /// Its name, unique in the container.
    #[serde(borrow, default)]
    pub name: Slot<Text<'a>>,
    /// Its number in the pod.
    #[serde(default, rename = "containerPort")]
    pub container_port: Slot<i64>,
    /// Its number on the node.
    #[serde(default, rename = "hostPort")]
    pub host_port: Slot<i64>,
    /// TCP when absent.
    #[serde(borrow, default)]
    pub protocol: Slot<Text<'a>>,
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

/// A workload other than a Pod.
#[derive(Debug, Deserialize)]
pub struct Workload<'a> {
    /// The kind the object gives itself.
    #[serde(borrow, default)]
    pub kind: Slot<Text<'a>>,
    /// The job's own metadata.
    #[serde(borrow, default)]
    pub metadata: Slot<Metadata<'a>>,
    /// The spec, of whichever kind.
    #[serde(borrow, default)]
    pub spec: Slot<WorkloadSpec<'a>>,
}

/// The places where the supported kinds keep pod templates.
#[derive(Debug, Deserialize)]
pub struct WorkloadSpec<'a> {
    /// AscendJob.
    #[serde(borrow, default, rename = "replicaSpecs")]
    pub replica_specs: Slot<Ordered<'a, Slot<Holder<'a>>>>,
    /// Volcano Job.
    #[serde(borrow, default)]
    pub tasks: Slot<Vec<Holder<'a>>>,
    /// Deployment, StatefulSet, Job.
    #[serde(borrow, default)]
    pub template: Slot<Template<'a>>,
    /// CronJob.
    #[serde(borrow, default, rename = "jobTemplate")]
    pub job_template: Slot<JobTemplate<'a>>,
}

/// Anything with a `template`.
#[derive(Debug, Deserialize)]
pub struct Holder<'a> {
    /// The pod template.
    #[serde(borrow, default)]
    pub template: Slot<Template<'a>>,
}

/// `spec.jobTemplate` of a CronJob.
#[derive(Debug, Deserialize)]
pub struct JobTemplate<'a> {
    /// The Job's spec.
    #[serde(borrow, default)]
    pub spec: Slot<Holder<'a>>,
}

/// A map in its own order.
#[derive(Debug)]
pub struct Ordered<'a, V>(pub Vec<(Text<'a>, V)>);

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Ordered<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Debug)]
        struct All;
        impl Keys for All {
            fn keep(_: &str) -> bool {
                true
            }
        }
        Ok(Self(Kept::<'de, All, V>::deserialize(deserializer)?.members))
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
                message: without_position(&located.inner().to_string()),
            },
            // Trailing characters after a whole value: nothing inside it is to blame.
            Ok(_) => ShapeError { field: ".".to_owned(), message: error.to_string() },
        }
    })
}

/// serde_json ends its messages with a position in the JSON text, which the user never saw.
fn without_position(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text).to_owned()
}
