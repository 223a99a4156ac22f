//! What is said of a training program.

use serde::Serialize;
use strum::{Display, IntoStaticStr};

use crate::framework::Framework;
use crate::parallel::{Estimate, Parallelism};
use crate::reason::TrainerReason as Reason;

/// Whether a dying checkpoint can be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Display, IntoStaticStr)]
pub enum Verdict {
    /// Nothing that is known prevents it, and everything that decides is known.
    #[serde(rename = "can")]
    #[strum(serialize = "can")]
    Can,
    #[serde(rename = "can't")]
    #[strum(serialize = "can't")]
    Cannot,
    /// Something that decides isn't known.
    #[serde(rename = "can't tell")]
    #[strum(serialize = "can't tell")]
    Unknown,
}

/// A reason in a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub reason: Reason,
    /// A sentence for the user.
    pub message: String,
    /// The script; empty for a command.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// 0 if it has no line.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(line: &usize) -> bool {
    *line == 0
}

/// A training program and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Training {
    pub framework: Framework,
    /// The path of the program or its module.
    pub program: String,
    /// The script that starts it; empty for a command.
    pub file: String,
    pub line: usize,
    pub verdict: Verdict,
    pub findings: Vec<Finding>,
    /// How it is split over NPUs, if that is known.
    pub parallelism: Option<Parallelism>,
    /// Sizes and rates, if the shape of the model is known.
    pub estimate: Option<Estimate>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", 0) => {}
            ("", line) => write!(f, "line {line}: ")?,
            (file, 0) => write!(f, "{file}: ")?,
            (file, line) => write!(f, "{file}:{line}: ")?,
        }
        write!(f, "{}: {}", self.reason, self.message)
    }
}
