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
        let mut deciding = checks.iter().filter(|check| !check.advisory).map(|check| check.finding.status());
        if deciding.clone().any(|status| status == Status::Fail) {
            Self::False
        } else if deciding.clone().any(|status| status == Status::Unknown) || deciding.next().is_none() {
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
    /// Whether it is told without deciding whether the node is ready.
    pub advisory: bool,
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
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            advisory: bool,
        }
        let Finding { reason, message, path } = &self.finding;
        Flat {
            name: self.name,
            status: reason.status(),
            reason: *reason,
            message,
            path: path.as_deref().map(|path| path.to_string_lossy()),
            advisory: self.advisory,
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
        for Check { name, finding, advisory } in &self.checks {
            let (status, reason) = (finding.status().as_str(), finding.reason.as_str());
            write!(f, "{status:<7}  {:<15}  {reason:<20}  {}", name.as_str(), safe(&finding.message))?;
            if *advisory && finding.status() != Status::Pass {
                write!(f, " (advisory: it doesn't decide)")?;
            }
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
        let finding = Finding::at("/x\u{1b}", reason, "a\u{1b}[2Jb");
        Check { name: CheckName::Clock, finding, advisory: false }
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
    fn advisory_checks_are_told_and_do_not_decide() {
        let mut advisory = check(Reason::ClusterdRefused);
        advisory.advisory = true;
        assert_eq!(Ready::of(&[advisory.clone()]), Ready::Unknown, "nothing decides");
        let report = Report::new("n", vec![check(Reason::Present), advisory]);
        assert_eq!(report.ready, Ready::True);
        assert!(report.to_string().contains("(advisory"), "{report}");
        let json = serde_json::to_value(&report).expect("serialised");
        assert_eq!(
            (&json["checks"][0]["advisory"], &json["checks"][1]["advisory"]),
            (&serde_json::Value::Null, &true.into())
        );
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
