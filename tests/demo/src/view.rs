//! Objects as text.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};
use swansong_demo::operator::CONTAINER;

use crate::screen::{Screen, Tone};

/// What the API server itself adds to every object.
const BOOKKEEPING: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "namespace", "resourceVersion", "uid"];

/// An object as YAML, keys in the order of the alphabet as the API server has them, its bookkeeping
/// left out.
pub(crate) fn yaml(object: &Value) -> Result<String> {
    let mut object = sorted(object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !BOOKKEEPING.contains(&key.as_str()));
    }
    serde_saphyr::to_string(&object).context("write an object as YAML")
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(Map::from_iter(entries))
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Shows what changed between two texts, and all around it.
pub(crate) fn diff(screen: &Screen, before: &str, after: &str) {
    for change in TextDiff::from_lines(before, after).iter_all_changes() {
        let line = change.value().trim_end();
        match change.tag() {
            ChangeTag::Insert => screen.tinted(Tone::Good, format_args!("  + {line}")),
            ChangeTag::Delete => screen.tinted(Tone::Bad, format_args!("  - {line}")),
            ChangeTag::Equal => screen.tinted(Tone::Faint, format_args!("    {line}")),
        }
    }
}

/// Shows the variables and ports of a pod's training container; those that Swansong added are highlighted.
pub(crate) fn container(screen: &Screen, pod: &Pod) {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    for container in containers.filter(|container| container.name == CONTAINER) {
        for variable in container.env.iter().flatten() {
            let tone = if ours(&variable.name) { Tone::Good } else { Tone::Faint };
            let mark = if ours(&variable.name) { '+' } else { ' ' };
            screen.tinted(tone, format_args!("  {mark} {}={}", variable.name, value(variable)));
        }
        screen.line(format_args!("    ports: {}", ports(container)));
    }
}

fn ours(name: &str) -> bool {
    matches!(name, "LD_PRELOAD" | "POD_IP" | "TASKD_PROCESS_ENABLE" | "TTP_PORT")
}

fn value(variable: &EnvVar) -> String {
    let field = variable.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
    match (&variable.value, field) {
        (Some(value), _) => value.clone(),
        (None, Some(field)) => format!("<{}>", field.field_path),
        (None, None) => String::new(),
    }
}

fn ports(container: &Container) -> String {
    let ports = container.ports.iter().flatten();
    let ports = ports.map(|port| format!("{} {}", port.container_port, port.name.as_deref().unwrap_or("-")));
    ports.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bookkeeping_is_left_out_and_keys_are_in_order() {
        let object = json!({
            "spec": { "b": [{ "d": 1, "c": "x" }], "a": "on" },
            "metadata": { "uid": "1", "name": "n", "managedFields": [] },
        });
        let text = yaml(&object).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            back,
            json!({ "metadata": { "name": "n" }, "spec": { "a": "on", "b": [{ "c": "x", "d": 1 }] } })
        );
        assert!(text.find("a:").unwrap() < text.find("b:").unwrap(), "{text}");
    }
}
