//! What a snapshot shows of each link. Pure.
#![allow(
    clippy::unnecessary_wraps,
    reason = "all checks have the same type, since `Err` is a result of most"
)]

mod addresses;
mod certificate;
mod cluster;
mod environment;
mod finding;
mod image;
mod installation;
mod job;
mod link;
mod nodes;
mod pod;
mod pods;
mod processes;

#[cfg(test)]
mod tests;

pub(crate) use self::cluster::age;
pub use self::finding::{Check, Status};
pub use self::link::{Area, Link};
use crate::snapshot::{Job, NodeSnapshot, Snapshot};
use k8s_openapi::api::core::v1::Pod;

/// The checks of everything in `snapshot`, by area and subject.
pub fn run(snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(installation) = &snapshot.installation {
        checks.extend(installation::check(installation, snapshot));
    }
    if let Some(cluster) = &snapshot.cluster {
        checks.extend(cluster::check(cluster, snapshot));
    }
    for job in &snapshot.jobs {
        checks.extend(of_job(job, snapshot));
    }
    checks.extend(nodes::check(snapshot));
    checks
}

/// The checks of a job and its Pods.
pub(crate) fn of_job(job: &Job, snapshot: &Snapshot) -> Vec<Check> {
    let mut checks = job::check(job, snapshot);
    checks.extend(pods::check(job, snapshot));
    checks
}

/// The results of the checks of a node's conditions, with what was seen.
pub(crate) fn of_node(node: &NodeSnapshot, now: u64) -> Vec<(Link, Status, String)> {
    let conditions = nodes::conditions(node, now).into_iter();
    let judged = conditions.map(|(link, judged)| (link, judged.unwrap_or_else(|verdict| verdict)));
    judged.map(|(link, verdict)| (link, verdict.status, verdict.seen)).collect()
}

/// Whether MindIO's controller and the TaskD Manager belong to a Pod.
pub(crate) fn is_first(pod: &Pod) -> bool {
    pod::PodView::of(pod).is_first()
}
