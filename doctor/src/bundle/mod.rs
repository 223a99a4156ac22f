//! What a support engineer asks for, in one archive without secrets: `swansong doctor --bundle`.
//!
//! ```text
//! Material ─entries─▶ redacted entries, the most important first ─▶ tar.gz of a limited size
//! ```

mod archive;
mod entries;
mod redact;
mod timeline;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::Value;

pub use self::archive::{ArchiveError, Bundle, LIMIT};
pub use self::entries::{Entry, entries};
pub use self::redact::Redactor;
use crate::fault_course::{Course, LogSource};
use crate::snapshot::{Seen, Snapshot};

/// Everything that was read for a bundle.
#[derive(Debug, Clone)]
pub struct Material {
    pub snapshot: Snapshot,
    /// The version of the API server.
    pub api_server: Seen<String>,
    /// The course of the last fault of each job that had one.
    pub courses: Vec<Course>,
    /// Of the jobs' namespaces and of nodes.
    pub events: Vec<Event>,
    /// The whole `/status` of each agent that was asked.
    pub agents: BTreeMap<String, Seen<Value>>,
    /// Pods of the webhook, the agents and ClusterD.
    pub pods: Vec<Pod>,
    /// The ends of logs, by namespace and source.
    pub logs: Vec<(String, LogSource, Seen<String>)>,
    /// What couldn't be read beside these, and why.
    pub unread: Vec<String>,
}
