//! The environment of a container, as the kubelet resolves it.

use k8s_openapi::api::core::v1::{Container, EnvVar};

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Absent,
    Text(String),
    /// The Pod's own address, by `status.podIP`.
    PodIp,
    /// From a field, a ConfigMap or a Secret, which isn't read.
    Elsewhere,
    /// It refers to a variable that isn't defined before it, so the reference stays as it is written.
    Unresolved(String),
}

impl Value {
    /// The text, if it is known.
    pub(super) const fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text.as_str()) } else { None }
    }
}

/// The value of the last entry of this name.
pub(super) fn value(container: &Container, name: &str) -> Value {
    let env = container.env.as_deref().unwrap_or_default();
    match env.iter().rposition(|variable| variable.name == name) {
        Some(index) => resolve(env, index, 0),
        None => Value::Absent,
    }
}

/// `$(NAME)` is replaced only if an entry before defines it (`k8s.io/kubernetes/third_party/forked/golang/expansion`).
fn resolve(env: &[EnvVar], index: usize, depth: usize) -> Value {
    let variable = &env[index];
    if let Some(source) = &variable.value_from {
        let is_pod_ip = source.field_ref.as_ref().is_some_and(|field| field.field_path == "status.podIP");
        return if is_pod_ip { Value::PodIp } else { Value::Elsewhere };
    }
    let text = variable.value.clone().unwrap_or_default();
    let Some((before, rest)) = text.split_once("$(") else { return Value::Text(text) };
    let Some((name, after)) = rest.split_once(')') else { return Value::Text(text) };
    // More than one reference, or a long chain of them, isn't followed.
    if after.contains("$(") || depth > 8 {
        return Value::Elsewhere;
    }
    let Some(earlier) = env[..index].iter().rposition(|variable| variable.name == name) else {
        return Value::Unresolved(text);
    };
    match resolve(env, earlier, depth + 1) {
        Value::Text(value) => Value::Text(format!("{before}{value}{after}")),
        Value::PodIp if before.is_empty() && after.is_empty() => Value::PodIp,
        Value::PodIp => Value::Elsewhere,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_resolved_as_the_kubelet_does() {
        let container: Container = serde_json::from_value(json!({"name": "ascend", "env": [
            {"name": "EARLY", "value": "$(LATE)"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "LATE", "value": "10.0.0.1"},
            {"name": "OF_IP", "value": "$(IP)"},
            {"name": "OF_LATE", "value": "tcp://$(LATE):8000"},
            {"name": "CHAIN", "value": "$(OF_IP)"},
            {"name": "TWO", "value": "$(LATE)$(IP)"},
            {"name": "TWICE", "value": "1"},
            {"name": "TWICE", "value": "2"},
            {"name": "EMPTY"},
        ]}))
        .expect("a container");
        let text = |text: &str| Value::Text(text.to_owned());
        for (name, expected) in [
            ("EARLY", Value::Unresolved("$(LATE)".to_owned())),
            ("IP", Value::PodIp),
            ("HOST", Value::Elsewhere),
            ("OF_IP", Value::PodIp),
            ("OF_LATE", text("tcp://10.0.0.1:8000")),
            ("CHAIN", Value::PodIp),
            ("TWO", Value::Elsewhere),
            ("TWICE", text("2")),
            ("EMPTY", text("")),
            ("NONE", Value::Absent),
        ] {
            assert_eq!(value(&container, name), expected, "{name}");
        }
    }
}
