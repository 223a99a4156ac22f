//! Everything with a time, in one order.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::Material;
use crate::fault_course::{LogLine, event_time};
use crate::report::escape;
use crate::snapshot::Seen;

/// One line for each happening, by time.
pub(super) fn timeline(material: &Material) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for event in &material.events {
        let Some(at) = event_time(event) else { continue };
        let object = &event.involved_object;
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let (kind, name) = (part(&object.kind), part(&object.name));
        lines.push((at, format!("{kind} {name}  {}: {}", part(&event.reason), part(&event.message))));
    }
    for node in &material.snapshot.nodes {
        let status = node.node.read().and_then(|node| node.status.as_ref());
        for condition in status.into_iter().flat_map(|status| status.conditions.iter().flatten()) {
            let Some(at) = condition.last_transition_time.as_ref().and_then(|time| millis(time.0)) else {
                continue;
            };
            let reason = condition.reason.as_deref().unwrap_or_default();
            lines.push((
                at,
                format!("Node {}  {} is {}: {reason}", node.name, condition.type_, condition.status),
            ));
        }
    }
    let of_jobs = material.snapshot.jobs.iter().filter_map(|job| job.pods.read()).flatten();
    for pod in of_jobs.chain(&material.pods) {
        containers(pod, &mut lines);
    }
    for (_, source, log) in &material.logs {
        let Seen::Read(log) = log else { continue };
        for line in LogLine::of(source, log) {
            let Some(at) = line.at else { continue };
            lines.push((at, format!("log of {}/{}  {}", source.pod, source.container, line.text)));
        }
    }
    lines.sort();
    let mut text = String::new();
    for (at, what) in lines {
        let time = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
        let time = time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()).unwrap_or_default();
        // Writing into a String doesn't fail.
        let _ = writeln!(text, "{time}  {}", escape(&what));
    }
    text
}

fn containers(pod: &Pod, lines: &mut Vec<(u64, String)>) {
    let name = pod.name_any();
    let Some(status) = &pod.status else { return };
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    for ContainerStatus { name: container, state, last_state, .. } in all {
        for state in [last_state, state].into_iter().flatten() {
            if let Some(running) = &state.running
                && let Some(at) = running.started_at.as_ref().and_then(|time| millis(time.0))
            {
                lines.push((at, format!("Pod {name}  container {container} started")));
            }
            if let Some(ended) = &state.terminated
                && let Some(at) = ended.finished_at.as_ref().and_then(|time| millis(time.0))
            {
                let reason = ended.reason.as_deref().unwrap_or_default();
                lines.push((
                    at,
                    format!("Pod {name}  container {container} ended with {} ({reason})", ended.exit_code),
                ));
            }
        }
    }
}

fn millis(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_millisecond()).ok()
}
