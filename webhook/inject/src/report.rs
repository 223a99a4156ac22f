//! The result of an injection.

use std::borrow::Cow;

use serde::Serialize;
use swansong_trainer::TrainerReason;

use super::operation::Operation;
use crate::reason::Reason;

/// The result of one object.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The requested strategies, trimmed, in the user's order.
    pub strategies: Vec<String>,
    /// Why the whole object was left unchanged; `None` if at least one template was injected.
    pub skip: Option<Reason>,
    /// The pod templates, in the object's order.
    pub templates: Vec<TemplateReport>,
    /// Information that requires no action.
    pub notes: Vec<Warning>,
    /// Problems that the user should fix.
    pub warnings: Vec<Warning>,
    /// What is wrong with the training program or its start script, each reason once.
    pub trainer: Vec<TrainerReason>,
    /// Why the request is denied; set by who knows the configuration of the webhook.
    pub denied: Option<Warning>,
    /// The changes, in the order in which to apply them.
    pub operations: Vec<Operation>,
}

impl Outcome {
    /// Whether at least one template has what the dying checkpoint needs.
    pub fn injected(&self) -> bool {
        self.skip.is_none()
    }
}

/// The result of one pod template.
#[derive(Debug, Serialize)]
pub struct TemplateReport {
    /// JSON pointer of the template; empty for a Pod.
    pub path: String,
    /// Whether its pods have rank 0.
    #[serde(rename = "rankZero")]
    pub rank_zero: bool,
    /// Why this template was left unchanged.
    #[serde(rename = "skipReason")]
    pub skip: Option<Reason>,
    /// Actions outside the containers: annotations copied from the job, and the node affinity.
    pub actions: Vec<Action>,
    /// The chosen containers.
    pub containers: Vec<ContainerReport>,
}

/// The result of one chosen container.
#[derive(Debug, Serialize)]
pub struct ContainerReport {
    pub name: String,
    /// Actions by field.
    pub actions: Vec<Action>,
}

/// The result of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Action {
    /// `env.TTP_PORT`, `ports.9601`, `env.LD_PRELOAD`, `launcherHook`, `annotations.recover-strategy`,
    /// `affinity.nodeReadiness`.
    pub field: Cow<'static, str>,
    pub action: ActionKind,
    /// The value of the field, if known.
    pub value: Option<String>,
    /// Why it was done.
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionKind {
    /// The field was missing.
    Added,
    /// The field was extended.
    Merged,
    /// The field was left as it is.
    Kept,
    /// The field is missing and wasn't added.
    Skipped,
}

/// A warning or a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The kind of problem.
    pub reason: Reason,
    /// A sentence that names container, field and remedy.
    pub message: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl Action {
    /// A field that was added because the dying checkpoint needs it.
    pub fn added(field: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        let value = Some(value.into());
        Self { field: field.into(), action: ActionKind::Added, value, reason: Reason::Required }
    }

    /// A field that was left as it is.
    pub fn kept(field: impl Into<Cow<'static, str>>, value: Option<String>, reason: Reason) -> Self {
        Self { field: field.into(), action: ActionKind::Kept, value, reason }
    }

    /// A field that isn't added.
    pub fn skipped(field: impl Into<Cow<'static, str>>, reason: Reason) -> Self {
        Self { field: field.into(), action: ActionKind::Skipped, value: None, reason }
    }
}
