//! Reason and message of the condition.

use std::fmt::Write as _;
use swansong_api::documented::Documented as _;

use super::{CheckState, Condition};
use crate::finding::{Check, CheckName, Finding, Ready, Reason, Status};

/// Messages of Events are limited to 1024 bytes.
const MAX_MESSAGE: usize = 1000;

/// Reasons of the condition that aren't those of a check.
///
/// The documentation of a variant is its meaning, the `message` says what to do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, strum::EnumMessage, strum::IntoStaticStr, strum::VariantArray,
)]
pub enum ConditionReason {
    /// All deciding checks pass.
    #[strum(message = "Nothing to do.")]
    ChecksPass,
    /// The node has booted and wasn't checked since.
    #[strum(message = "Wait for the first round of checks.")]
    NotCheckedSinceBoot,
    /// The agent has started, and its first round of checks hasn't completed.
    #[strum(message = "Wait for the first round of checks.")]
    NotCheckedYet,
    /// A round of checks doesn't complete, usually because a file system of the host hangs.
    #[strum(message = "Search for a hanging file system with `dmesg` and `mount`.")]
    CheckHangs,
    /// The checks can't run, for example because the host root can't be opened.
    #[strum(message = "Fix the problem in the condition's message.")]
    CheckFailed,
    /// All checks are advisory.
    #[strum(message = "Correct `advisory` in the configuration.")]
    NothingChecked,
}

/// A check that doesn't pass, without what may differ in every round, such as process ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    name: CheckName,
    reason: Reason,
    objects: Vec<String>,
}

impl Problem {
    fn of(name: CheckName, finding: &Finding) -> Self {
        let path = finding.path.iter().map(|path| path.display().to_string());
        let objects = path.chain(finding.objects.iter().cloned()).collect();
        Self { name, reason: finding.reason, objects }
    }

    pub(super) const fn check(&self) -> (CheckName, Reason) {
        (self.name, self.reason)
    }
}

/// Status, reason and message of the desired condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionDetails {
    /// The status of the condition.
    pub status: Ready,
    /// The reason of the first check that doesn't pass, or a [`ConditionReason`].
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// The checks that don't pass; `None` if a previous process wrote the condition.
    pub(super) problems: Option<Vec<Problem>>,
}

impl ConditionDetails {
    /// The details for the state of the checks.
    pub(super) fn of(checks: CheckState<'_>) -> Self {
        match checks {
            CheckState::Pending => {
                Self::unknown(ConditionReason::NotCheckedYet, "the first round of checks hasn't completed")
            }
            CheckState::Hanging => Self::unknown(
                ConditionReason::CheckHangs,
                "the checks don't complete; search for a hanging file system (`dmesg`, `mount`)",
            ),
            CheckState::Failed(problem) => {
                Self::unknown(ConditionReason::CheckFailed, &format!("the checks can't run: {problem}"))
            }
            CheckState::Completed(checks) => Self::of_checks(checks),
        }
    }

    /// The details between a boot and the end of the first round of checks.
    pub(super) fn since_boot() -> Self {
        Self::unknown(ConditionReason::NotCheckedSinceBoot, "the node has booted and wasn't checked since")
    }

    /// The details of a condition that a previous process wrote.
    pub(super) fn observed(condition: &Condition) -> Self {
        Self {
            status: condition.status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            problems: None,
        }
    }

    fn unknown(reason: ConditionReason, message: &str) -> Self {
        let mut message = message.to_owned();
        truncate(&mut message);
        let reason = reason.as_str().to_owned();
        Self { status: Ready::Unknown, reason, message, problems: Some(Vec::new()) }
    }

    fn of_checks(checks: &[Check]) -> Self {
        let status = Ready::of(checks);
        let deciding = || checks.iter().filter(|check| !check.advisory);
        let reported_status = match status {
            Ready::True => {
                let message = format!("all {} checks pass", deciding().count());
                let reason = ConditionReason::ChecksPass.as_str().to_owned();
                return Self { status, reason, message, problems: Some(Vec::new()) };
            }
            Ready::False => Status::Fail,
            Ready::Unknown => Status::Unknown,
        };
        let reported: Vec<&Check> =
            deciding().filter(|check| check.finding.status() == reported_status).collect();
        let Some(first) = reported.first() else {
            return Self::unknown(
                ConditionReason::NothingChecked,
                "all checks are advisory; see `advisory` in the configuration",
            );
        };
        let mut message = String::new();
        for Check { name, finding, .. } in &reported {
            let separator = if message.is_empty() { "" } else { "; " };
            // Writing to a String can't fail.
            let _ = write!(message, "{separator}{} ({}): ", name.as_str(), finding.reason.as_str());
            message.extend(finding.message.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
        }
        truncate(&mut message);
        Self {
            status,
            reason: first.finding.reason.as_str().to_owned(),
            message,
            problems: Some(reported.iter().map(|check| Problem::of(check.name, &check.finding)).collect()),
        }
    }
}

/// Truncates a message to the length of an Event's message.
pub fn truncate(message: &mut String) {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn every_reason_has_a_meaning_and_a_remedy() {
        for reason in ConditionReason::VARIANTS {
            for sentence in [reason.meaning(), reason.remedy()] {
                assert!(sentence.ends_with('.') && !sentence.contains(". "), "{reason:?}: {sentence}");
            }
        }
    }
}
