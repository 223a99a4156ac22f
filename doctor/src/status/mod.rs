//! Which jobs are ready for a dump, and what happened to them last: `swansong status`.
//!
//! ```text
//! watches ─▶ Observed ─table─▶ Table ─▶ text or JSON
//! ```
//!
//! Only what the API server sends to watches is used, so that a table that is kept open costs agents and webhook nothing.
//! It is judged by the [`checks`](crate::checks) of `swansong doctor`, which sees more.

mod rows;
mod text;
mod watch;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::DynamicObject;
use serde::Serialize;

pub use self::rows::table;
pub use self::text::Text;
pub use self::watch::Watches;
use crate::fault_course::Happening;
use crate::snapshot::{JobObject, Seen};

/// What was observed.
#[derive(Debug, Clone)]
pub struct Observed {
    /// In milliseconds since 1970.
    pub now: u64,
    /// The jobs of each kind.
    pub jobs: Vec<Seen<Vec<JobObject>>>,
    /// Volcano's PodGroups; of their content only the metadata.
    pub groups: Seen<Vec<DynamicObject>>,
    pub pods: Seen<Vec<Pod>>,
    pub nodes: Seen<Vec<Node>>,
    /// The agents' Events.
    pub events: Seen<Vec<Event>>,
    /// Why what was observed may be stale.
    pub interrupted: Option<String>,
}

/// All jobs that ask for a dump, and all nodes that could save one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    pub jobs: Vec<JobRow>,
    pub nodes: Vec<NodeRow>,
    /// What couldn't be read, and why.
    pub problems: Vec<String>,
}

/// Whether a dump can be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Ready {
    /// The watches show no reason against it.
    Yes,
    /// Something couldn't be read.
    Unknown,
    No,
    /// The job has ended.
    Ended,
}

/// A job that asks for a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRow {
    pub namespace: String,
    pub name: String,
    /// The number of Pods that run; `None` if they couldn't be read.
    pub running_pods: Option<usize>,
    /// The number of Pods that the job asks for.
    pub wanted_pods: i64,
    pub ready: Ready,
    /// Why it isn't ready, or isn't known to be.
    pub why: Vec<Reason>,
    /// The last fault that hit it, if its Event still exists.
    pub last_fault: Option<Happening>,
    /// Its outcome; `None` also if that isn't known yet.
    pub outcome: Option<Happening>,
}

/// A node with an agent, or with a Pod of a job that asks for a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub name: String,
    pub ready: Ready,
    pub why: Vec<Reason>,
    /// The reason of the condition FaultsRelayed; `None` if its agent reports no faults.
    pub faults_relayed: Option<String>,
    /// The number of Pods of jobs that ask for a dump.
    pub pods: usize,
    pub last_fault: Option<Happening>,
}

/// A check that doesn't pass, and what it saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub check: String,
    pub seen: String,
}
