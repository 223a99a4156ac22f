//! A fault, from the first report of a source to its end at ClusterD.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::fault_id::FaultId;
use crate::level::Level;
use crate::source_update::{Severity, Subject};

/// The source under which escalation rules report what they raised.
pub const RULES: &str = "rules";

/// The earliest occurrence that ClusterD accepts: 2025-01-01, in milliseconds since 1970.
pub const EARLIEST: u64 = 1_735_689_600_000;

/// A fault of one subject. It keeps its id until it has ended at its sources and at ClusterD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// ClusterD's name of it.
    pub id: String,
    /// The device that has it.
    pub subject: Subject,
    /// The driver's or MindCluster's code.
    pub code: Code,
    /// How it is handled, and why.
    #[serde(flatten)]
    pub classification: Classification,
    /// How severe the driver calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// The source's text for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Physical ids of the affected devices.
    pub devices: Vec<u32>,
    /// When it occurred by this host's clock, in milliseconds since 1970.
    pub since: u64,
    /// What ends it.
    pub kind: FaultKind,
    /// The sources that report it, or reported it last before a restart.
    pub sources: BTreeSet<String>,
    /// How far it has come.
    pub phase: Phase,
    /// The delivery in this process.
    #[serde(skip)]
    pub delivery: Delivery,
}

/// The level of a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Classification {
    pub level: Level,
    /// Why it has this level, for people.
    pub reason: String,
}

/// What ends a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FaultKind {
    /// It is active until no source reports it.
    Condition,
    /// It is an event: it ends when ClusterD has accepted it.
    Notice,
    /// An escalation rule raised it from another fault of the same code, and ends it.
    Raised,
}

/// How far a fault has come.
///
/// From [`Sent`](Self::Sent) on ClusterD may know it, so that its end has to be sent too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// It has to be reported for a while before it is sent: ClusterD doesn't take a kill back.
    Settling,
    /// Something keeps it from being sent.
    Blocked(BlockReason),
    /// It is sent with the next batch.
    Ready,
    /// It was part of a batch, and ClusterD doesn't show it yet.
    Sent,
    /// ClusterD shows it.
    Confirmed,
    /// It was withdrawn after its jobs ended, although it is still reported.
    Withdrawn,
    /// No source reports it any longer; its end is sent until ClusterD shows it no more.
    Ending,
}

/// Why a fault isn't sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "snake_case")]
pub enum BlockReason {
    /// ClusterD would do nothing about it, and notices aren't sent.
    NotHandled,
    /// No enabled source can report its end.
    SourceDisabled,
    /// ClusterD has it from the device plugin.
    ReportedByDevicePlugin,
    /// An earlier fault of the same code hasn't ended at ClusterD.
    PreviousEnding,
    /// Its jobs are being checked.
    Preflight,
    /// ClusterD would end ranks and no checkpoint would be saved.
    NothingSaved,
    /// ClusterD refused it, and it isn't sent again.
    Refused(String),
}

/// The delivery of a fault, or of its end, in this process. Times are those of [`crate::reconcile::Inputs::now`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Whether a source has reported the fault since this process began.
    pub reported_since_start: bool,
    /// Since when it is reported without being reported by the device plugin too.
    pub settling_since: Option<Duration>,
    /// How often ClusterD answered.
    pub attempts: u32,
    /// When ClusterD last answered; `None` if it has to be sent.
    pub answered_at: Option<Duration>,
    /// It isn't sent again before.
    pub retry_at: Duration,
    /// Whether the last answer was a refusal, after which ClusterD may still have the fault.
    pub refused: bool,
    /// Whether ClusterD was seen without the fault after it was withdrawn.
    pub is_gone: bool,
    /// Whether the ranks on a lost device were [to be ended](crate::reconcile::Plan::lost).
    pub loss: Loss,
}

/// The loss of a device, on which ranks may be ended once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Loss {
    /// It isn't reported.
    #[default]
    None,
    /// It has been reported since then.
    Since(Duration),
    /// It was part of a plan, of this process or an earlier one.
    Handled,
}

/// What ClusterD does about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Handling {
    None,
    /// What the job asks for (`subHealthyStrategy`).
    SubHealth,
    /// It ends the ranks on the affected devices.
    EndRanks,
}

impl Fault {
    /// What ClusterD does about it.
    pub const fn handling(&self) -> Handling {
        match self.kind {
            // What has passed must not end anything.
            FaultKind::Notice => Handling::None,
            FaultKind::Condition | FaultKind::Raised => self.classification.level.handling(),
        }
    }

    /// Whether ranks end by it.
    pub fn ends_ranks(&self) -> bool {
        self.handling() == Handling::EndRanks
    }

    /// Whether ClusterD may know it.
    pub const fn may_be_known(&self) -> bool {
        matches!(self.phase, Phase::Sent | Phase::Confirmed | Phase::Withdrawn | Phase::Ending)
    }

    /// A fault that only ClusterD has, derived from its id, which is enough to withdraw it.
    pub fn from_id(id: &str) -> Self {
        let parsed = FaultId::parse(id);
        let subject = parsed.as_ref().map_or(Subject::Node, |id| id.subject);
        Self {
            id: id.to_owned(),
            subject,
            code: parsed.as_ref().map_or(Code::from(0), |id| id.code.clone()),
            classification: Classification {
                level: Level::NotHandleFault,
                reason: "only ClusterD has it".to_owned(),
            },
            severity: None,
            name: None,
            devices: vec![if let Subject::Npu(npu) = subject { npu } else { 0 }],
            since: parsed.map_or(EARLIEST, |id| id.since),
            kind: FaultKind::Condition,
            sources: BTreeSet::new(),
            phase: Phase::Ending,
            delivery: Delivery::default(),
        }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let mut text = match self.subject {
            Subject::Npu(id) => format!("NPU {id}: {}", self.code),
            Subject::Node => format!("node: {}", self.code),
        };
        // Writing into a String doesn't fail.
        if let Some(name) = &self.name {
            let _ = write!(text, " ({name})");
        }
        let _ = write!(text, ", {}", self.classification.level);
        if let Some(severity) = self.severity {
            let _ = write!(text, ", severity {severity}");
        }
        let sources: Vec<&str> = self.sources.iter().map(String::as_str).collect();
        if !sources.is_empty() {
            let _ = write!(text, ", reported by {}", sources.join(", "));
        }
        text
    }
}

impl Level {
    /// What ClusterD does about a fault of this level.
    pub const fn handling(self) -> Handling {
        match self {
            Self::NotHandleFault | Self::PreSeparateNPU => Handling::None,
            Self::SubHealthFault => Handling::SubHealth,
            _ => Handling::EndRanks,
        }
    }
}
