//! The vocabulary of findings about a node. The names of checks and reasons are the same in reports, conditions, Events,
//! logs and metric labels.

mod check_name;
mod reason;
mod report;

use std::path::PathBuf;

use serde::Serialize;

pub use self::check_name::CheckName;
pub use self::reason::Reason;
pub use self::report::Report;
pub(crate) use self::report::escape;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr, strum::VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// The check found nothing wrong.
    Pass,
    /// The check found a problem.
    Fail,
    /// The check couldn't find out.
    Unknown,
}

impl Status {
    /// The lower-case name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whether a node can save a dying job, spelled as the status of a Kubernetes condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr, strum::VariantArray)]
pub enum Ready {
    /// Every deciding check passes.
    True,
    /// At least one deciding check fails.
    False,
    /// No deciding check fails, and at least one couldn't find out.
    Unknown,
}

impl Ready {
    /// Summarises the checks that aren't advisory. Without any, the node is [`Ready::Unknown`].
    pub fn of(checks: &[Check]) -> Self {
        let mut deciding = checks.iter().filter(|check| !check.advisory).map(|check| check.finding.status());
        if deciding.clone().any(|status| status == Status::Fail) {
            Self::False
        } else if deciding.clone().any(|status| status == Status::Unknown) || deciding.next().is_none() {
            Self::Unknown
        } else {
            Self::True
        }
    }

    /// The spelling of a condition's status.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The reason, which determines the status.
    pub reason: Reason,
    /// Details and, unless the check passes, what to do.
    pub message: String,
    /// The path that was checked, as the host sees it.
    pub path: Option<PathBuf>,
    /// The failing devices, ports or files beside the path. Conditions are updated when they change, unlike for other parts
    /// of the message.
    pub objects: Vec<String>,
}

impl Finding {
    /// A finding about a path.
    pub fn at(path: impl Into<PathBuf>, reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), path: Some(path.into()), objects: Vec::new() }
    }

    /// A finding about something without a path.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), path: None, objects: Vec::new() }
    }

    /// Adds the failing objects.
    #[must_use]
    pub fn about<T: ToString>(self, objects: impl IntoIterator<Item = T>) -> Self {
        Self { objects: objects.into_iter().map(|object| object.to_string()).collect(), ..self }
    }

    /// The status that belongs to the reason.
    pub const fn status(&self) -> Status {
        self.reason.status()
    }
}

/// A check and its finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: CheckName,
    /// What it found.
    pub finding: Finding,
    /// Whether the check is reported without deciding whether the node is ready.
    pub advisory: bool,
}
