//! What is added to a Pod beside its training containers: volumes, init containers and the grace period.

use serde_json::Value;
use swansong_api::record::{GracePeriodRecord, Record};

use crate::operation::Operation;
use crate::original::append;
use crate::view::{Container, PodSpec, Slot};

/// Names of members of a Pod's spec.
pub(crate) const VOLUMES: &str = "volumes";
pub(crate) const INIT_CONTAINERS: &str = "initContainers";
pub(crate) const GRACE_PERIOD: &str = "terminationGracePeriodSeconds";
/// Of a Pod that has none.
pub(crate) const DEFAULT_GRACE_PERIOD: i64 = 30;

/// What is added to one template, emitted once since several parts add to one list.
#[derive(Debug, Default)]
pub(crate) struct PodAdditions {
    pub(crate) volumes: Vec<(&'static str, Value)>,
    /// The init container that finds the libraries.
    pub(crate) finder: Option<Value>,
    /// The sidecar with the TaskD Manager.
    pub(crate) manager: Option<Value>,
    /// Seconds from SIGTERM to SIGKILL that the Pod needs at least.
    pub(crate) grace_period: Option<i64>,
}

impl PodAdditions {
    /// Adds to the template at `path`, and records it.
    pub(crate) fn emit(
        self,
        path: &str,
        spec: &PodSpec<'_>,
        record: &mut Record,
        operations: &mut Vec<Operation>,
    ) {
        let parent = format!("{path}/spec");
        record.volumes.extend(self.volumes.iter().map(|(name, _)| (*name).to_owned()));
        let volumes: Vec<Value> = self.volumes.into_iter().map(|(_, volume)| volume).collect();
        let created = (&mut record.absent, &mut record.null);
        append(operations, &parent, VOLUMES, &spec.volumes, &volumes, created);

        let present = spec.init_containers.items();
        let mut added: Vec<Value> = Vec::new();
        if let Some(finder) = self.finder {
            record.init_containers.push(name(&finder));
            match present.iter().position(Container::is_sidecar) {
                // A sidecar may be a training container, which needs the links.
                Some(index) => {
                    operations.push(Operation::add(format!("{parent}/{INIT_CONTAINERS}/{index}"), &finder));
                }
                None => added.push(finder),
            }
        }
        if let Some(manager) = self.manager {
            record.init_containers.push(name(&manager));
            added.push(manager);
        }
        let created = (&mut record.absent, &mut record.null);
        append(operations, &parent, INIT_CONTAINERS, &spec.init_containers, &added, created);

        if let Some(to) = self.grace_period {
            let from = spec.termination_grace.present().copied();
            record.grace_period = Some(GracePeriodRecord { from, to });
            if spec.termination_grace == Slot::Null {
                record.null.push(GRACE_PERIOD.to_owned());
            }
            // `add` on an existing member replaces it (RFC 6902).
            operations.push(Operation::add(format!("{parent}/{GRACE_PERIOD}"), &to));
        }
    }
}

fn name(container: &Value) -> String {
    container["name"].as_str().unwrap_or_default().to_owned()
}

/// Whether a mount at `path` has `folder` in it.
pub(crate) fn hides(path: &str, folder: &str) -> bool {
    let below = folder.strip_prefix(path.trim_end_matches('/'));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
