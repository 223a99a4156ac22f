//! Audit annotations: what was done and why, without values of environment variables.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use swansong_api::documented::Documented as _;

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
                annotations.put(FAILED, reason.as_str());
            }
            Verdict::Injected | Verdict::Complete => {}
        }
        if let Some(outcome) = outcome {
            annotations.put(INJECTED, &list(outcome, injected));
            annotations.put(KEPT, &list(outcome, kept));
            if skipped.is_empty() {
                skipped = list(outcome, left_out);
            }
        }
        annotations.put(SKIPPED, &skipped);
        annotations.put(WARNINGS, &reasons(warnings));
        if let Some(prefix) = subject.generate_name() {
            annotations.put(GENERATE_NAME, &printable(prefix.to_string()));
        }
        annotations
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.0.push((key, cut(value, LONGEST)));
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

fn injected(action: &Action) -> Option<String> {
    matches!(action.action, ActionKind::Added | ActionKind::Merged).then(|| action.field.to_string())
}

fn kept(action: &Action) -> Option<String> {
    let is_kept = action.action == ActionKind::Kept && action.reason != Reason::AlreadyPresent;
    is_kept.then(|| with_reason(action))
}

fn left_out(action: &Action) -> Option<String> {
    (action.action == ActionKind::Skipped).then(|| with_reason(action))
}

fn with_reason(action: &Action) -> String {
    format!("{}={}", action.field, action.reason)
}

/// `Master/ascend: env.POD_IP env.TTP_PORT; Worker/ascend: env.POD_IP`. Empty entries are left out.
fn list(outcome: &Outcome, text: fn(&Action) -> Option<String>) -> String {
    let mut entries = Vec::new();
    let mut add = |place: &str, actions: &[Action]| {
        let fields: Vec<String> = actions.iter().filter_map(text).collect();
        if !fields.is_empty() {
            entries.push(format!("{place}: {}", fields.join(" ")));
        }
    };
    for template in &outcome.templates {
        // `Master` of `/spec/replicaSpecs/Master/template`; a Pod has but one template, without a path.
        let part = template.path.rsplit('/').nth(1).unwrap_or_default();
        add(if part.is_empty() { "pod" } else { part }, &template.actions);
        for container in &template.containers {
            add(format!("{part}/{}", container.name).trim_matches('/'), &container.actions);
        }
    }
    entries.join("; ")
}

/// Each reason once, in the order of the warnings.
fn reasons(warnings: &[&Warning]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for warning in warnings {
        if !reasons.contains(&warning.reason.as_str()) {
            reasons.push(warning.reason.as_str());
        }
    }
    reasons.join(",")
}
