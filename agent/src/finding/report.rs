//! Reports of a round of checks.

use std::fmt::{self, Write as _};
use swansong_api::documented::Documented as _;

use serde::{Serialize, Serializer};

use super::{Check, CheckName, Finding, Ready, Reason, Status};

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
        let Finding { reason, message, path, .. } = &self.finding;
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

/// The result of a round of checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub node: String,
    /// Whether the node can save a dying job.
    pub ready: Ready,
    /// The checks, in the order of [`CheckName`].
    pub checks: Vec<Check>,
}

impl Report {
    /// Summarises the checks of `node`.
    pub fn new(node: impl Into<String>, checks: Vec<Check>) -> Self {
        Self { node: node.into(), ready: Ready::of(&checks), checks }
    }
}

/// One line per check.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", escape(&self.node), self.ready.as_str())?;
        for Check { name, finding, advisory } in &self.checks {
            let (status, reason) = (finding.status().as_str(), finding.reason.as_str());
            write!(f, "{status:<7}  {:<15}  {reason:<20}  {}", name.as_str(), escape(&finding.message))?;
            if *advisory && finding.status() != Status::Pass {
                write!(f, " (advisory: not decisive)")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Escapes control characters, since file names may contain terminal sequences.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            // Writing to a String can't fail.
            let _ = write!(escaped, "{}", c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reason: Reason) -> Check {
        let finding = Finding::at("/x\u{1b}", reason, "a\u{1b}[2Jb");
        Check { name: CheckName::Clock, finding, advisory: false }
    }

    #[test]
    fn unknown_and_empty_are_not_ready() {
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
    fn advisory_checks_are_reported_and_do_not_decide() {
        let mut advisory = check(Reason::ClusterdRefused);
        advisory.advisory = true;
        assert_eq!(Ready::of(&[advisory.clone()]), Ready::Unknown, "no deciding check");
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
    fn json_is_flat() {
        let report = Report::new("n", vec![check(Reason::ClockSkewed)]);
        assert_eq!(
            serde_json::to_string(&report).expect("serialised"),
            r#"{"node":"n","ready":"False","checks":[{"name":"clock","status":"fail","reason":"ClockSkewed","message":"a\u001b[2Jb","path":"/x\u001b"}]}"#
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = Report::new("n\r", vec![check(Reason::Present)]).to_string();
        assert_eq!(text, "n\\r  True\npass     clock            Present               a\\u{1b}[2Jb\n");
    }
}
