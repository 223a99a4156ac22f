//! Decides what a Node shows about its readiness. Pure: time, checks and the observed Node are arguments.
//!
//! ```text
//! checks → hysteresis → desired status ┐
//! observed condition, label, taint, boot ┴→ reconcile → actions: update, taint, Event
//! ```
//!
//! The desired state is compared with the observed Node, not with the last write. So a failed write, a restart and a
//! change by another client are handled in the same way.

mod details;
mod heartbeat;
mod hysteresis;
mod reconciler;
mod write_budget;

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

pub use self::details::{ConditionDetails, ConditionReason, truncate};
pub use self::reconciler::Reconciler;
use crate::finding::{Check, CheckName, Ready, Reason};

/// When status changes are reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a failure must hold.
    pub fail_after: Duration,
    /// How long recovery must hold; longer for a node that failed often.
    pub recover_after: Duration,
    /// How long the status must be unknown.
    pub unknown_after: Duration,
    /// The longest time between two writes. Without changes the shortest is half of it.
    pub heartbeat: Duration,
    /// Whether a node that isn't ready gets the taint.
    pub taint: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fail_after: Duration::from_secs(1),
            recover_after: Duration::from_secs(3),
            unknown_after: Duration::from_secs(30),
            heartbeat: Duration::from_mins(10),
            taint: false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum CheckState<'a> {
    /// The first round hasn't completed.
    Pending,
    /// A round doesn't complete.
    Hanging,
    /// The last round failed before all checks were done.
    Failed(&'a str),
    /// The last round completed.
    Completed(&'a [Check]),
}

/// The current time.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// On a monotonic clock, from an arbitrary start.
    pub elapsed: Duration,
    /// On the wall clock.
    pub wall: SystemTime,
}

/// What a Node shows about its readiness.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ObservedNode {
    /// The condition `DumpReady`.
    pub condition: Option<Condition>,
    /// The label `swansong.dev/dump-ready`.
    pub label: Option<String>,
    /// Whether the node has the taint `swansong.dev/not-ready`.
    pub tainted: bool,
    /// The annotation `swansong.dev/boot-id`.
    #[serde(skip)]
    pub boot_id: Option<String>,
}

/// A condition of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    pub status: Ready,
    /// The CamelCase reason.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// Time of the last write, to the second.
    #[serde(rename = "lastHeartbeatTime", serialize_with = "as_seconds")]
    pub heartbeat: SystemTime,
    /// Time of the last status change, to the second.
    #[serde(rename = "lastTransitionTime", serialize_with = "as_seconds")]
    pub transition: SystemTime,
}

fn as_seconds<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_rfc3339_seconds(*time))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum WriteCause {
    /// The status changed.
    Transition,
    /// Other checks fail, or other devices or files.
    Details,
    /// Another client changed the Node.
    Correction,
    /// The heartbeat is due.
    Heartbeat,
}

impl WriteCause {
    /// The value of metric labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// An update of the Node, written in one request. Label and condition are always consistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUpdate {
    pub cause: WriteCause,
    /// The condition `DumpReady`.
    pub condition: Condition,
    /// The value of the label.
    pub label: &'static str,
    /// The value of the annotation; `None` keeps it.
    pub boot_id: Option<String>,
}

/// An Event about the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// Whether its type is `Warning`.
    pub warning: bool,
    /// The CamelCase reason.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The checks that don't pass or have recovered, with the reason while they didn't pass.
    pub checks: Vec<(CheckName, Reason)>,
}

/// What has to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// Update condition, label and annotation.
    pub update: Option<NodeUpdate>,
    /// Add (`true`) or remove (`false`) the taint.
    pub taint: Option<bool>,
    /// Send an Event.
    pub event: Option<NodeEvent>,
    /// Check again soon, since the status may change.
    pub is_settling: bool,
    /// Another client's change isn't corrected before this time has passed, since the budget is exhausted.
    pub deferred_for: Option<Duration>,
}
