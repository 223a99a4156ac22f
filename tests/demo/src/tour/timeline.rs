//! What happens to a job after a fault, in the order of time: from Kubernetes' own logs and Events.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};
use swansong_testcluster::Error;

use crate::operator::CONTAINER;
use crate::training::Training;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// Seconds after the fault.
    pub(super) after: f64,
    pub(super) who: String,
    pub(super) what: String,
}

/// What happens to one job.
pub(super) struct Timeline<'a> {
    client: Client,
    job: &'a Training,
    fault: Timestamp,
    /// When Events were first seen, by their names: their own times are whole seconds.
    events: HashMap<String, Timestamp>,
}

impl<'a> Timeline<'a> {
    /// The timeline of a job that is hit by a fault now.
    pub(super) fn start(client: Client, job: &'a Training) -> Self {
        Self { client, job, fault: Timestamp::now(), events: HashMap::new() }
    }

    /// Seconds since the fault.
    pub(super) fn elapsed(&self) -> f64 {
        seconds(self.fault, Timestamp::now())
    }

    /// Everything so far, the earliest first.
    pub(super) async fn read(&mut self) -> Result<Vec<Entry>, Error> {
        let mut entries = self.logs().await?;
        entries.extend(self.events().await?);
        entries.sort_by(|one, other| one.after.total_cmp(&other.after));
        Ok(entries)
    }

    /// What the processes of the job have printed.
    pub(super) async fn logs(&self) -> Result<Vec<Entry>, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.job.namespace);
        let parameters =
            LogParams { container: Some(CONTAINER.to_owned()), timestamps: true, ..LogParams::default() };
        let mut entries = Vec::new();
        for pod in pods.list(&ListParams::default()).await? {
            let name = pod.name_any();
            let log = pods.logs(&name, &parameters).await?;
            entries.extend(log.lines().filter_map(|line| parse(self.fault, &name, line)));
        }
        Ok(entries)
    }

    /// The agent's Events about the job and its Pods.
    async fn events(&mut self) -> Result<Vec<Entry>, Error> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.job.namespace);
        let mut entries = Vec::new();
        for event in events.list(&ListParams::default()).await? {
            if event.reporting_component.as_deref() != Some("swansong-agent") {
                continue;
            }
            let at = *self.events.entry(event.name_any()).or_insert_with(Timestamp::now);
            let who = format!("Event, {}", event.involved_object.kind.unwrap_or_default());
            let what = format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default());
            entries.push(Entry { after: seconds(self.fault, at), who, what });
        }
        Ok(entries)
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// A line of a log behind the time of the kubelet; nothing for lines from before the fault.
fn parse(fault: Timestamp, pod: &str, line: &str) -> Option<Entry> {
    let (time, text) = line.split_once(' ')?;
    let at: Timestamp = time.parse().ok()?;
    (at >= fault).then(|| Entry { after: seconds(fault, at), who: pod.to_owned(), what: text.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_from_before_the_fault_are_left_out() {
        let fault = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(parse(fault, "a", "2026-01-01T00:00:09.5Z before"), None);
        let after = parse(fault, "a", "2026-01-01T00:00:12.5Z it happened").unwrap();
        assert_eq!((after.after, after.what.as_str()), (2.5, "it happened"));
    }
}
