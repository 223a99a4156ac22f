//! What the agents' Events say of faults.

use k8s_openapi::api::core::v1::Event;
use serde::Serialize;
use swansong_api::annotations::FAULT_ID;

use super::{Stage, Step};

/// An Event of an agent about a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Happening {
    /// In milliseconds since 1970, by the clock of the agent's node.
    pub at: Option<u64>,
    pub reason: String,
    /// The node whose agent wrote it.
    pub node: Option<String>,
    /// The id of the fault.
    pub fault: Option<String>,
    pub message: String,
}

impl Happening {
    pub fn of(event: &Event) -> Self {
        let annotations = event.metadata.annotations.as_ref();
        Self {
            at: event_time(event),
            reason: event.reason.clone().unwrap_or_default(),
            node: event.source.as_ref().and_then(|source| source.host.clone()),
            fault: annotations.and_then(|annotations| annotations.get(FAULT_ID)).cloned(),
            message: event.message.clone().unwrap_or_default(),
        }
    }

    /// Who saw it.
    pub(super) fn by(&self) -> String {
        self.node.as_ref().map(|node| format!("agent of {node}")).unwrap_or_default()
    }

    /// `None` for one that says nothing of the course.
    pub(super) fn step(&self) -> Option<Step> {
        let what = format!("{}: {}", self.reason, self.message);
        Some(Step { at: self.at, stage: stage(&self.reason)?, by: self.by(), what })
    }
}

/// The part of the course that the reason of an Event belongs to.
fn stage(reason: &str) -> Option<Stage> {
    Some(match reason {
        "DeviceFault" => Stage::Fault,
        "FaultBlocked" | "FaultRefused" => Stage::Held,
        "FaultRelayed" | "FaultReportedByDevicePlugin" => Stage::Sent,
        "RankEnded" | "RankNotEnded" => Stage::Ranks,
        "DumpSucceeded" | "DumpFailed" | "DumpOutcomeUnknown" | "JobRecovered" | "JobNotRecovered" => {
            Stage::Outcome
        }
        "DeviceFaultEnded" | "FaultRecoveryRelayed" | "FaultWithdrawn" => Stage::End,
        _ => return None,
    })
}

/// When an Event happened last, in milliseconds since 1970.
pub fn event_time(event: &Event) -> Option<u64> {
    let time = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|time| time.0);
    let time = time.or_else(|| event.event_time.as_ref().map(|time| time.0));
    u64::try_from(time?.as_millisecond()).ok()
}

/// Whether an Event says that a fault has begun, or what was done about it.
pub fn is_of_fault(event: &Event) -> bool {
    let stage = event.reason.as_deref().and_then(stage);
    matches!(stage, Some(Stage::Fault | Stage::Held | Stage::Sent | Stage::Ranks))
}

/// Whether an Event has the outcome of a job after a fault.
pub fn is_outcome(event: &Event) -> bool {
    event.reason.as_deref().and_then(stage) == Some(Stage::Outcome)
}
