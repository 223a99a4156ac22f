//! Why a node is ready, isn't, or can't be told: the words of the condition.

use std::fmt::Write as _;

use super::{Condition, Looked};
use crate::check::CheckName;
use crate::reason::Reason;
use crate::report::{Check, Ready, Status};

/// Events have at most 1024 bytes, and a condition should be readable.
const LONGEST: usize = 1000;

macro_rules! standings {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The condition's reasons that aren't those of a single check.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Standing { $($(#[doc = $doc])+ $name,)+ }

        impl Standing {
            /// All of them, in the order of documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The CamelCase name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// One sentence of explanation.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

standings! {
    /// Every check that decides passes.
    ChecksPass,
    /// The node was started anew and hasn't been checked since.
    NotCheckedSinceBoot,
    /// The agent has started and its first round of checks hasn't ended.
    NotCheckedYet,
    /// A round of checks doesn't end: a file system of the host hangs.
    CheckHangs,
    /// The checks break off: the host's file system can't be opened, or the agent has a fault.
    CheckFailed,
    /// No check decides.
    NothingChecked,
}

/// What is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// What is said.
    pub ready: Ready,
    /// The first failing check's reason, or a [`Standing`].
    pub reason: String,
    /// For people.
    pub message: String,
    /// The checks that don't pass; `None` if that isn't known, since a former process told it.
    pub details: Option<Vec<(CheckName, Reason)>>,
}

impl Story {
    /// What the checks say.
    pub(super) fn of(looked: Looked<'_>) -> Self {
        match looked {
            Looked::NotYet => {
                Self::unknown(Standing::NotCheckedYet, "the first round of checks hasn't ended")
            }
            Looked::Hangs => Self::unknown(
                Standing::CheckHangs,
                "the checks don't come to an end; look for a file system that hangs (`dmesg`, `mount`)",
            ),
            Looked::Failed => Self::unknown(
                Standing::CheckFailed,
                "the checks break off; the agent's log and /status say why",
            ),
            Looked::Done(checks) => Self::checked(checks),
        }
    }

    /// What is said until the first round after a boot has ended.
    pub(super) fn since_boot() -> Self {
        Self::unknown(
            Standing::NotCheckedSinceBoot,
            "the node was started anew and hasn't been checked since",
        )
    }

    /// What a former process said.
    pub(super) fn told(condition: &Condition) -> Self {
        Self {
            ready: condition.status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            details: None,
        }
    }

    fn unknown(standing: Standing, message: &str) -> Self {
        let reason = standing.as_str().to_owned();
        Self { ready: Ready::Unknown, reason, message: message.to_owned(), details: Some(Vec::new()) }
    }

    fn checked(checks: &[Check]) -> Self {
        let ready = Ready::of(checks);
        let deciding = || checks.iter().filter(|check| !check.advisory);
        let wanted = match ready {
            Ready::True => {
                let number = deciding().count();
                let message = format!("all {number} checks pass");
                let reason = Standing::ChecksPass.as_str().to_owned();
                return Self { ready, reason, message, details: Some(Vec::new()) };
            }
            Ready::False => Status::Fail,
            Ready::Unknown => Status::Unknown,
        };
        let told: Vec<&Check> = deciding().filter(|check| check.finding.status() == wanted).collect();
        let Some(first) = told.first() else {
            return Self::unknown(
                Standing::NothingChecked,
                "no check decides; see `advisory` in the configuration",
            );
        };
        let mut message = String::new();
        for Check { name, finding, .. } in &told {
            let separator = if message.is_empty() { "" } else { "; " };
            // Writing to a String doesn't fail.
            let _ = write!(message, "{separator}{} ({}): ", name.as_str(), finding.reason.as_str());
            message.extend(finding.message.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
        }
        shorten(&mut message);
        Self {
            ready,
            reason: first.finding.reason.as_str().to_owned(),
            message,
            details: Some(told.iter().map(|check| (check.name, check.finding.reason)).collect()),
        }
    }
}

/// Cuts what is longer than an Event may be.
pub(crate) fn shorten(message: &mut String) {
    if message.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
}
