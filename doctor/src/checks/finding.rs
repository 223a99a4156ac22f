//! What checks find.

use std::collections::BTreeMap;
use swansong_api::documented::Documented as _;

use serde::{Serialize, Serializer};

use super::link::Link;
use crate::snapshot::Seen;

/// How many subjects a text names.
const NAMED: usize = 3;

/// The result of a check, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// The link was seen to hold.
    Pass,
    /// The link holds, and something beside it may cost the checkpoint.
    Warn,
    /// It couldn't be seen.
    Unknown,
    /// The link is broken.
    Fail,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// `namespace/name` of a job, or nothing.
    pub subject: String,
    pub link: Link,
    pub status: Status,
    /// What was seen.
    pub seen: String,
    /// The Pods or nodes that don't pass, if there are several.
    pub objects: Vec<String>,
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'a> {
            area: super::Area,
            subject: &'a str,
            check: Link,
            status: Status,
            seen: &'a str,
            objects: &'a [String],
            remedy: Option<&'static str>,
            docs: String,
        }
        let Self { subject, link, status, seen, objects } = self;
        Flat {
            area: link.area(),
            subject,
            check: *link,
            status: *status,
            seen,
            objects,
            remedy: (*status != Status::Pass).then(|| link.remedy()),
            docs: link.docs(),
        }
        .serialize(serializer)
    }
}

/// The result for one subject. `Err` is one that ends a check early, which `?` allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) status: Status,
    pub(super) seen: String,
}

pub(super) type Judged = Result<Verdict, Verdict>;

impl Verdict {
    pub(super) fn pass(seen: impl Into<String>) -> Self {
        Self { status: Status::Pass, seen: seen.into() }
    }

    pub(super) fn warn(seen: impl Into<String>) -> Self {
        Self { status: Status::Warn, seen: seen.into() }
    }

    pub(super) fn unknown(seen: impl Into<String>) -> Self {
        Self { status: Status::Unknown, seen: seen.into() }
    }

    pub(super) fn fail(seen: impl Into<String>) -> Self {
        Self { status: Status::Fail, seen: seen.into() }
    }

    /// `Pass` if `is_good`, else `Fail`.
    pub(super) fn of(is_good: bool, seen: impl Into<String>) -> Self {
        if is_good { Self::pass(seen) } else { Self::fail(seen) }
    }
}

/// What was read of `what`; else that it isn't known.
pub(super) fn known<'a, T>(seen: &'a Seen<T>, what: &str) -> Result<Option<&'a T>, Verdict> {
    seen.known().map_err(|why| Verdict::unknown(format!("{what} {why}")))
}

/// What was read of `what`; else that it isn't known or, if it doesn't exist, a failure.
pub(super) fn required<'a, T>(seen: &'a Seen<T>, what: &str) -> Result<&'a T, Verdict> {
    known(seen, what)?.ok_or_else(|| Verdict::fail(format!("{what} doesn't exist")))
}

/// The checks of a subject.
#[derive(Debug, Default)]
pub(super) struct Checks {
    subject: String,
    pub(super) all: Vec<Check>,
}

impl Checks {
    pub(super) fn of(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), all: Vec::new() }
    }

    pub(super) fn add(&mut self, link: Link, judged: impl Into<Judged>) {
        let Verdict { status, seen } = judged.into().unwrap_or_else(|verdict| verdict);
        self.all.push(Check { subject: self.subject.clone(), link, status, seen, objects: Vec::new() });
    }

    /// Adds one check for several Pods or nodes: the worst of their results, and which of them have it. Nothing is added if
    /// there are none.
    pub(super) fn add_all<'a>(
        &mut self,
        link: Link,
        unit: &str,
        judged: impl IntoIterator<Item = (&'a str, Judged)>,
    ) {
        let mut groups: BTreeMap<(Status, String), Vec<&str>> = BTreeMap::new();
        let mut count = 0;
        for (name, judged) in judged {
            let Verdict { status, seen } = judged.unwrap_or_else(|verdict| verdict);
            groups.entry((status, seen)).or_default().push(name);
            count += 1;
        }
        let Some(((status, _), _)) = groups.last_key_value() else { return };
        let status = *status;
        let bad: Vec<_> = groups.iter().rev().filter(|((of, _), _)| *of > Status::Pass).collect();
        let mut objects: Vec<String> =
            bad.iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())).collect();
        objects.sort_unstable();
        let seen = if status == Status::Pass {
            let mut texts = groups.keys().map(|(_, seen)| seen);
            let first = texts.next().map_or("", String::as_str);
            let more = if texts.next().is_some() { ", and alike" } else { "" };
            format!("{count} {unit}: {first}{more}")
        } else {
            let texts = bad.iter().take(NAMED).map(|((_, seen), names)| {
                let named = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
                let more = if names.len() > NAMED { ", …" } else { "" };
                format!("{} of {count} {unit} ({named}{more}): {seen}", names.len())
            });
            texts.collect::<Vec<_>>().join("; ")
        };
        self.all.push(Check { subject: self.subject.clone(), link, status, seen, objects });
    }
}

impl From<Verdict> for Judged {
    fn from(verdict: Verdict) -> Self {
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_several_subjects_is_the_worst_and_names_them() {
        let mut checks = Checks::of("ml/bert");
        let good = || Ok(Verdict::pass("it runs"));
        let bad = || Err(Verdict::fail("it has ended"));
        checks.add_all(Link::PodsRunning, "Pods", [("a", good()), ("b", good())]);
        checks.add_all(
            Link::PodsRunning,
            "Pods",
            [("a", bad()), ("b", Ok(Verdict::warn("slow"))), ("c", bad()), ("d", good())],
        );
        checks.add_all(Link::PodsRunning, "Pods", [("a", good()), ("b", Ok(Verdict::unknown("hidden")))]);
        checks.add_all(Link::PodsRunning, "Pods", []);
        let found: Vec<(Status, &str)> =
            checks.all.iter().map(|check| (check.status, check.seen.as_str())).collect();
        assert_eq!(
            found,
            [
                (Status::Pass, "2 Pods: it runs"),
                (Status::Fail, "2 of 4 Pods (a, c): it has ended; 1 of 4 Pods (b): slow"),
                (Status::Unknown, "1 of 2 Pods (b): hidden"),
            ]
        );
        assert_eq!(checks.all[1].objects, ["a", "b", "c"]);
    }

    #[test]
    fn what_is_not_read_is_unknown_and_never_passes() {
        for seen in [Seen::Forbidden("no".to_owned()), Seen::Failed("no".to_owned()), Seen::NotAsked] {
            assert_eq!(required::<()>(&seen, "it").expect_err("it isn't there").status, Status::Unknown);
        }
        assert_eq!(required::<()>(&Seen::Absent, "it").expect_err("it isn't there").status, Status::Fail);
    }
}
