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
mod installation;
mod job;
mod link;
mod nodes;
mod pod;
mod pods;
mod processes;

#[cfg(test)]
mod tests;

pub use self::finding::{Check, Status};
pub use self::link::{Area, Link};
use crate::snapshot::Snapshot;

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
        checks.extend(job::check(job, snapshot));
        checks.extend(pods::check(job, snapshot));
    }
    checks.extend(nodes::check(snapshot));
    checks
}
