//! Views of containers, their variables and ports.

use serde::de::IgnoredAny;

use super::json::view;
use super::{Kept, Keys, Quantity, Slot, Text, VolumeMount};

/// Keeps the NPU resources of a request or limit.
#[derive(Debug)]
pub struct NpuKeys;

impl Keys for NpuKeys {
    fn keep(key: &str) -> bool {
        key.starts_with("huawei.com/")
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
        /// The program with its first arguments.
        pub command: "command" => Slot<Vec<Slot<Text<'a>>>>,
        /// What follows `command`, or the arguments of the image's program.
        pub args: "args" => Slot<Vec<Slot<Text<'a>>>>,
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

    /// Whether it mounts the volume called `name`.
    pub fn mounts(&self, name: &str) -> bool {
        self.volume_mounts.items().iter().any(|mount| mount.name.text() == name)
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
        pub file_key_ref: "fileKeyRef" => Slot<KeyRef<'a>>,
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
        let references = [&self.config_map_key_ref, &self.secret_key_ref, &self.file_key_ref];
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
