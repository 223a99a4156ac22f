//! What is said about a node.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::check::CheckName;
use crate::reason::Reason;

/// What one check says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it has to be.
    Pass,
    /// Not as it has to be.
    Fail,
    /// It couldn't be told.
    Unknown,
}

impl Status {
    /// The lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether a node is able to save a dying job, spelled as the status of a Kubernetes condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Ready {
    /// Every check passes.
    True,
    /// At least one check fails.
    False,
    /// No check fails, and at least one couldn't tell.
    Unknown,
}

impl Ready {
    /// What follows from the checks; unknown is never called healthy, and neither is nothing.
    pub fn of(checks: &[Check]) -> Self {
        let any = |status| checks.iter().any(|check| check.finding.status() == status);
        if any(Status::Fail) {
            Self::False
        } else if any(Status::Unknown) || checks.is_empty() {
            Self::Unknown
        } else {
            Self::True
        }
    }

    /// The name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Why; the status follows from it.
    pub reason: Reason,
    /// What was seen and, unless all is well, what to do.
    pub message: String,
    /// The path that was looked at, as the host sees it.
    pub path: Option<PathBuf>,
}

impl Finding {
    /// A finding about a path.
    pub fn at(path: impl Into<PathBuf>, reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), path: Some(path.into()) }
    }

    /// A finding about something without a path.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), path: None }
    }

    /// Pass, fail or unknown.
    pub const fn status(&self) -> Status {
        self.reason.status()
    }
}

/// One check and what it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which check.
    pub name: CheckName,
    /// What it found.
    pub finding: Finding,
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            name: CheckName,
            status: Status,
            reason: Reason,
            message: &'a str,
            path: Option<std::borrow::Cow<'a, str>>,
        }
        let Finding { reason, message, path } = &self.finding;
        Flat {
            name: self.name,
            status: reason.status(),
            reason: *reason,
            message,
            path: path.as_deref().map(|path| path.to_string_lossy()),
        }
        .serialize(serializer)
    }
}

/// The whole picture of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The node's name.
    pub node: String,
    /// Whether it is able to save a dying job.
    pub ready: Ready,
    /// Every check, in a fixed order.
    pub checks: Vec<Check>,
}

impl Report {
    /// A report on these checks.
    pub fn new(node: impl Into<String>, checks: Vec<Check>) -> Self {
        Self { node: node.into(), ready: Ready::of(&checks), checks }
    }
}

/// For people: one line a check.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", safe(&self.node), self.ready.as_str())?;
        for Check { name, finding } in &self.checks {
            let (status, reason) = (finding.status().as_str(), finding.reason.as_str());
            write!(f, "{status:<7}  {:<15}  {reason:<20}  {}", name.as_str(), safe(&finding.message))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Names of files may hold anything; a terminal shall not obey them.
fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            // Writing to a String doesn't fail.
            let _ = write!(safe, "{}", c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reason: Reason) -> Check {
        Check { name: CheckName::Clock, finding: Finding::at("/x\u{1b}", reason, "a\u{1b}[2Jb") }
    }

    #[test]
    fn unknown_is_never_healthy() {
        let (pass, fail, unknown) = (Reason::Present, Reason::FileMissing, Reason::NotReadable);
        for (reasons, expected) in [
            (&[][..], Ready::Unknown),
            (&[pass], Ready::True),
            (&[pass, unknown], Ready::Unknown),
            (&[unknown, fail, pass], Ready::False),
        ] {
            let checks: Vec<Check> = reasons.iter().map(|&reason| check(reason)).collect();
            assert_eq!(Ready::of(&checks), expected, "{reasons:?}");
        }
    }

    #[test]
    fn the_shape_of_the_json() {
        let report = Report::new("n", vec![check(Reason::ClockSkewed)]);
        assert_eq!(
            serde_json::to_string(&report).expect("serialised"),
            r#"{"node":"n","ready":"False","checks":[{"name":"clock","status":"fail","reason":"ClockSkewed","message":"a\u001b[2Jb","path":"/x\u001b"}]}"#
        );
    }

    #[test]
    fn terminals_obey_nothing() {
        let text = Report::new("n\r", vec![check(Reason::Present)]).to_string();
        assert_eq!(text, "n\\r  True\npass     clock            Present               a\\u{1b}[2Jb\n");
    }

    #[test]
    fn reasons_are_described() {
        for reason in Reason::ALL {
            assert!(reason.description().ends_with('.'), "{reason:?}");
        }
    }
}
