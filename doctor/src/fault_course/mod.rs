//! What happened to a job after its last fault: `swansong doctor --last-fault`.
//!
//! [`Course::new`] is a pure function of the agents' Events, their `/status`, and the lines of logs that could be read.

mod happening;
mod log_lines;
mod text;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use self::happening::{Happening, event_time, is_of_fault, is_outcome};
pub use self::log_lines::{LogLine, LogSource, MEANINGS, Meaning};
pub use self::text::Text;
use k8s_openapi::api::core::v1::Event;

/// What is left of the last fault of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    /// `namespace/name` of the job.
    pub job: String,
    /// The Events with the id of the fault.
    pub events: Vec<Event>,
    /// `ProcessRecoverStatus` of the job's PodGroup.
    pub recover_status: Option<String>,
    /// What the agent of the fault's node still does about it.
    pub agent: Option<AgentView>,
    /// The lines that say something, of all logs that could be read.
    pub lines: Vec<LogLine>,
    /// What couldn't be read, and why.
    pub unread: Vec<String>,
}

/// The fault in the `/status` of its node's agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentView {
    pub node: String,
    /// The phase of the fault; `None` if it has ended for the agent.
    pub phase: Option<String>,
    /// Whether the outcome is still awaited.
    pub is_awaited: bool,
}

/// A part of the course.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr, strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Stage {
    /// A source reported the fault.
    Fault,
    /// It wasn't sent.
    Held,
    /// ClusterD got it.
    Sent,
    /// Ranks ended, or were found lost.
    Ranks,
    /// ClusterD ordered the dump.
    Order,
    /// Ranks saved their parts of the checkpoint.
    Save,
    /// The outcome for the checkpoint.
    Outcome,
    /// The fault ended or was withdrawn.
    End,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// In milliseconds since 1970, by the clock of the node that wrote it.
    pub at: Option<u64>,
    pub stage: Stage,
    /// Who saw it: an agent's node, or a container's log.
    pub by: String,
    pub what: String,
}

/// Whether the checkpoint was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    Saved,
    /// Another strategy has recovered the job.
    Recovered,
    NotSaved,
    /// It isn't known yet.
    Pending,
    Unknown,
}

/// What may have cost the checkpoint, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cause {
    pub what: String,
    pub remedy: String,
    /// Who saw it.
    pub by: String,
}

/// The course of the last fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    pub job: String,
    /// The id of the fault; `None` if no Event of one is left.
    pub fault: Option<String>,
    pub outcome: Outcome,
    /// All steps, ordered by time.
    pub steps: Vec<Step>,
    /// The ranks that MindIO's controller found lost.
    pub lost_ranks: Option<String>,
    /// Empty if the checkpoint was saved.
    pub causes: Vec<Cause>,
    /// What isn't known, and why.
    pub unknown: Vec<String>,
}

impl Course {
    /// Reconstructs the course from what is left of it.
    pub fn new(evidence: Evidence) -> Self {
        let Evidence { job, events, recover_status, agent, lines, unread } = evidence;
        let mut happened: Vec<Happening> = events.iter().map(Happening::of).collect();
        happened.sort_by_key(|happening| happening.at);
        let fault = happened.iter().rev().find_map(|happening| happening.fault.clone());
        let mut unknown = unread;
        if fault.is_none() {
            let why = "no Event of a fault is left, which the API server keeps for an hour by default";
            unknown.insert(0, why.to_owned());
        }
        let outcome = outcome(&happened, recover_status.as_deref(), agent.as_ref(), &lines);
        let mut steps: Vec<Step> = happened.iter().filter_map(Happening::step).collect();
        steps.extend(lines.iter().map(LogLine::step));
        steps.sort_by_key(|step| (step.at, step.stage));
        // The same Event is on the Node, the Pods and the job.
        steps.dedup_by(|a, b| a.stage == b.stage && a.by == b.by && a.what == b.what);
        if lines.is_empty() {
            unknown.push(
                "no log shows a line of MindIO or the TaskD Manager: those that they write to files are in the \
                 container's log folder"
                    .to_owned(),
            );
        }
        if let Some(agent) = &agent {
            unknown.extend(agent.state());
        }
        let lost_ranks = lines.iter().rev().find_map(LogLine::lost_ranks);
        let causes = if matches!(outcome, Outcome::Saved | Outcome::Recovered) {
            Vec::new()
        } else {
            causes(&happened, &lines)
        };
        Self { job, fault, outcome, steps, lost_ranks, causes, unknown }
    }
}

impl AgentView {
    /// What it still does.
    fn state(&self) -> Option<String> {
        let node = &self.node;
        match (&self.phase, self.is_awaited) {
            (_, true) => Some(format!("the agent of node {node} still waits for the outcome")),
            (Some(phase), false) => {
                Some(format!("the fault is still open at the agent of node {node}: {phase}"))
            }
            (None, false) => None,
        }
    }
}

fn outcome(
    happened: &[Happening],
    recover_status: Option<&str>,
    agent: Option<&AgentView>,
    lines: &[LogLine],
) -> Outcome {
    let last = happened.iter().rev().find_map(|happening| match happening.reason.as_str() {
        "DumpSucceeded" => Some(Outcome::Saved),
        "DumpFailed" | "JobNotRecovered" => Some(Outcome::NotSaved),
        "JobRecovered" => Some(Outcome::Recovered),
        "DumpOutcomeUnknown" => Some(Outcome::Unknown),
        _ => None,
    });
    if let Some(outcome) = last {
        return outcome;
    }
    if agent.is_some_and(|agent| agent.is_awaited) {
        return Outcome::Pending;
    }
    // Without an Event the status may be that of an earlier fault, unless the logs show a dump.
    let was_ordered = lines.iter().any(|line| line.meaning.stage == Stage::Order);
    match recover_status {
        Some("dump-success") if was_ordered => Outcome::Saved,
        Some("dump-failed") if was_ordered => Outcome::NotSaved,
        _ => Outcome::Unknown,
    }
}

fn causes(happened: &[Happening], lines: &[LogLine]) -> Vec<Cause> {
    const LOST: &str = "The checkpoint may be lost: ";
    let with = |reason: &str| happened.iter().rev().find(|happening| happening.reason == reason);
    let was_sent = with("FaultRelayed").or_else(|| with("FaultReportedByDevicePlugin")).is_some();
    let mut causes = Vec::new();
    if let (Some(blocked), false) = (with("FaultBlocked"), was_sent) {
        causes.push(Cause {
            what: blocked.message.clone(),
            remedy: "Remove the objection: docs/faults.md#blocked-faults.".to_owned(),
            by: blocked.by(),
        });
    }
    if let Some(refused) = with("FaultRefused") {
        causes.push(Cause {
            what: refused.message.clone(),
            remedy: "See ClusterD's log: docs/clusterd.md#clusterds-responses.".to_owned(),
            by: refused.by(),
        });
    }
    for happening in happened {
        if let Some((_, loss)) = happening.message.split_once(LOST) {
            causes.push(Cause {
                what: loss.to_owned(),
                remedy: "Change the setting: docs/faults.md#blocked-faults.".to_owned(),
                by: happening.by(),
            });
        }
    }
    causes.extend(lines.iter().filter_map(LogLine::cause));
    causes.sort();
    causes.dedup_by(|a, b| a.what == b.what);
    causes
}
