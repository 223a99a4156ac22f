//! The result of all checks, and its text.

use std::fmt;
use swansong_api::documented::Documented as _;

use serde::Serialize;

use crate::checks::{Area, Check, Status};

/// The checks and what they amount to.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The worst status.
    pub status: Status,
    pub checks: Vec<Check>,
}

impl Report {
    /// A report of these checks.
    pub fn new(checks: Vec<Check>) -> Self {
        let status = checks.iter().map(|check| check.status).max().unwrap_or(Status::Unknown);
        Self { status, checks }
    }

    /// The number of checks with this status.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }

    /// The text, in which the checks that pass are folded unless `is_verbose`.
    pub const fn text(&self, is_verbose: bool) -> Text<'_> {
        Text { report: self, is_verbose }
    }
}

/// The report as text.
#[derive(Debug)]
pub struct Text<'a> {
    report: &'a Report,
    is_verbose: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sections = self.report.checks.chunk_by(|a, b| section(a) == section(b));
        let mut folded = 0;
        for checks in sections {
            let is_good = checks.iter().all(|check| check.status == Status::Pass);
            // Many jobs without a problem are one line.
            if is_good && !self.is_verbose && !checks[0].subject.is_empty() && self.is_long() {
                folded += 1;
                continue;
            }
            self.section(f, checks)?;
        }
        if folded > 0 {
            writeln!(f, "{} {folded} other sections without a problem", mark(Status::Pass))?;
        }
        let count = |status| self.report.count(status);
        writeln!(
            f,
            "\n{} {} pass, {} warn, {} unknown, {} fail",
            mark(self.report.status),
            count(Status::Pass),
            count(Status::Warn),
            count(Status::Unknown),
            count(Status::Fail)
        )
    }
}

impl Text<'_> {
    fn is_long(&self) -> bool {
        self.report.checks.chunk_by(|a, b| section(a) == section(b)).count() > 12
    }

    fn section(&self, f: &mut fmt::Formatter<'_>, checks: &[Check]) -> fmt::Result {
        let (area, subject) = section(&checks[0]);
        let area: &str = area.into();
        writeln!(f, "{area}{}{subject}", if subject.is_empty() { "" } else { " " })?;
        let passed = checks.iter().filter(|check| check.status == Status::Pass).count();
        if passed > 0 && !self.is_verbose {
            let names: Vec<&str> = checks
                .iter()
                .filter(|check| check.status == Status::Pass)
                .map(|check| check.link.as_str())
                .collect();
            writeln!(f, "  {} {}", mark(Status::Pass), wrap(&names))?;
        }
        for check in checks.iter().filter(|check| self.is_verbose || check.status != Status::Pass) {
            writeln!(f, "  {} {}: {}", mark(check.status), check.link.as_str(), escape(&check.seen))?;
            if check.status != Status::Pass {
                writeln!(f, "      {}", check.link.remedy())?;
                writeln!(f, "      {}", check.link.docs())?;
            }
        }
        Ok(())
    }
}

fn section(check: &Check) -> (Area, &str) {
    (check.link.area(), check.subject.as_str())
}

const fn mark(status: Status) -> char {
    match status {
        Status::Pass => '✓',
        Status::Warn => '‼',
        Status::Unknown => '?',
        Status::Fail => '×',
    }
}

/// Names in lines that fit a terminal.
fn wrap(names: &[&str]) -> String {
    const WIDTH: usize = 96;
    let mut lines = vec![String::new()];
    for name in names {
        let last = lines.len() - 1;
        if lines[last].len() + name.len() + 2 > WIDTH {
            lines.push(String::new());
        }
        let last = lines.len() - 1;
        if !lines[last].is_empty() {
            lines[last].push_str(", ");
        }
        lines[last].push_str(name);
    }
    lines.join(",\n    ")
}

/// Escapes control characters, since what was read may contain terminal sequences.
pub(crate) fn escape(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Link;

    fn check(subject: &str, link: Link, status: Status) -> Check {
        let (subject, seen) = (subject.to_owned(), "it is\u{1b}[2Jso".to_owned());
        Check { subject, link, status, seen, objects: Vec::new() }
    }

    #[test]
    fn checks_that_pass_are_folded_and_others_say_what_to_do() {
        let report = Report::new(vec![
            check("", Link::WebhookReplicas, Status::Pass),
            check("", Link::Agents, Status::Warn),
            check("ml/bert", Link::Strategy, Status::Pass),
            check("ml/bert", Link::ResetConfig, Status::Fail),
        ]);
        let expected = "\
installation
  ✓ webhook-replicas
  ‼ agents: it is\\u{1b}[2Jso
      See why its Pods aren't ready: kubectl -n swansong-agent describe pods.
      docs/doctor.md#agents
job ml/bert
  ✓ strategy
  × reset-config: it is\\u{1b}[2Jso
      Delete it if it exists; the webhook creates it again within seconds.
      docs/doctor.md#reset-config

× 2 pass, 1 warn, 0 unknown, 1 fail
";
        assert_eq!(report.text(false).to_string(), expected);
        assert!(report.text(true).to_string().contains("  ✓ strategy: it is"));
    }

    #[test]
    fn many_jobs_without_a_problem_are_one_line() {
        let mut checks: Vec<Check> =
            (0..200).map(|n| check(&format!("ml/job-{n}"), Link::Strategy, Status::Pass)).collect();
        checks[7].status = Status::Unknown;
        let text = Report::new(checks).text(false).to_string();
        assert!(text.lines().count() < 10 && text.contains("199 other sections"), "{text}");
        assert!(text.contains("job ml/job-7"), "{text}");
    }
}
