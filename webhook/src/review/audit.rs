//! Audit annotations: what was done and why, without values of environment variables.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::Verdict;
use super::name::Subject;
use super::trim::{cut, printable};
use swansong_inject::reason::Reason;
use swansong_inject::report::{Action, ActionKind, Outcome, Warning};

/// The longest value; an audit log has a line for every request.
const LONGEST: usize = 1024;

/// Fields that were added or extended, by container.
pub(super) const INJECTED: &str = "injected";
/// Fields that stay as the user has them and aren't simply as they must be, with the reason.
pub(super) const KEPT: &str = "kept";
/// Why the object, or a field of it, was left out.
pub(super) const SKIPPED: &str = "skipped";
/// The reasons of the warnings.
pub(super) const WARNINGS: &str = "warnings";
/// Why the object was admitted or denied without being processed.
pub(super) const FAILED: &str = "failed";
/// What the object's name will begin with; the audit event itself names no object then.
pub(super) const GENERATE_NAME: &str = "generate-name";

/// The annotations of one answer; the API server puts the webhook's name before each key.
#[derive(Debug, Default)]
pub(super) struct Annotations(Vec<(&'static str, String)>);

impl Annotations {
    pub(super) fn of(
        verdict: Verdict,
        outcome: Option<&Outcome>,
        warnings: &[&Warning],
        subject: &Subject<'_>,
    ) -> Self {
        let mut annotations = Self::default();
        let mut skipped = String::new();
        match verdict {
            Verdict::Skipped(reason) => skipped.push_str(reason.as_str()),
            Verdict::Failed(reason) | Verdict::Shed(reason) | Verdict::Denied(reason) => {
                annotations.put(FAILED, reason.as_str().to_owned());
            }
            Verdict::Injected | Verdict::Complete => {}
        }
        if let Some(outcome) = outcome {
            annotations.put(INJECTED, list(outcome, injected));
            annotations.put(KEPT, list(outcome, kept));
            if skipped.is_empty() {
                skipped = list(outcome, left_out);
            }
        }
        annotations.put(SKIPPED, skipped);
        annotations.put(WARNINGS, reasons(warnings));
        if let Some(prefix) = subject.generate_name() {
            annotations.put(GENERATE_NAME, printable(prefix.to_string()));
        }
        annotations
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put(&mut self, key: &'static str, value: String) {
        if !value.is_empty() {
            let value = if value.len() > LONGEST { cut(&value, LONGEST) } else { value };
            self.0.push((key, value));
        }
    }
}

impl Serialize for Annotations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

type Write = fn(&Action, &mut String);

fn injected(action: &Action, out: &mut String) {
    if matches!(action.action, ActionKind::Added | ActionKind::Merged) {
        out.push_str(&action.field);
    }
}

fn kept(action: &Action, out: &mut String) {
    if action.action == ActionKind::Kept && action.reason != Reason::AlreadyPresent {
        write_reason(action, out);
    }
}

fn left_out(action: &Action, out: &mut String) {
    if action.action == ActionKind::Skipped {
        write_reason(action, out);
    }
}

fn write_reason(action: &Action, out: &mut String) {
    out.push_str(&action.field);
    out.push('=');
    out.push_str(action.reason.as_str());
}

/// `Master/ascend: env.POD_IP env.TTP_PORT; Worker/ascend: env.POD_IP`. Empty entries are left out.
fn list(outcome: &Outcome, write: Write) -> String {
    // Room for the usual list of one container.
    let mut list = String::with_capacity(128);
    for template in &outcome.templates {
        // `Master` of `/spec/replicaSpecs/Master/template`; a Pod has but one template, without a path.
        let part = template.path.rsplit('/').nth(1).unwrap_or_default();
        entry(&mut list, if part.is_empty() { "pod" } else { part }, "", &template.actions, write);
        for container in &template.containers {
            entry(&mut list, part, &container.name, &container.actions, write);
        }
    }
    list
}

fn entry(list: &mut String, part: &str, container: &str, actions: &[Action], write: Write) {
    let before = list.len();
    if !list.is_empty() {
        list.push_str("; ");
    }
    list.push_str(part);
    if !part.is_empty() && !container.is_empty() {
        list.push('/');
    }
    list.push_str(container);
    list.push(':');
    let empty = list.len();
    for action in actions {
        let length = list.len();
        list.push(' ');
        write(action, list);
        if list.len() == length + 1 {
            list.truncate(length);
        }
    }
    if list.len() == empty {
        list.truncate(before);
    }
}

/// Each reason once, in the order of the warnings.
fn reasons(warnings: &[&Warning]) -> String {
    let mut reasons = String::new();
    for (index, warning) in warnings.iter().enumerate() {
        if warnings[..index].iter().all(|earlier| earlier.reason != warning.reason) {
            if !reasons.is_empty() {
                reasons.push(',');
            }
            reasons.push_str(warning.reason.as_str());
        }
    }
    reasons
}
