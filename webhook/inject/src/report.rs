//! What an injection did and why, for people and programs.

use std::borrow::Cow;

use serde::Serialize;

use super::operation::Operation;
use crate::reason::Reason;

/// Everything that came of looking at one object.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The strategies asked for, trimmed, in the user's order.
    pub strategies: Vec<String>,
    /// Why the object as a whole was left alone; `None` when at least one template was dealt with.
    pub skip: Option<Reason>,
    /// The pod templates, in the object's order.
    pub templates: Vec<TemplateReport>,
    /// What has to be said to the user.
    pub warnings: Vec<Warning>,
    /// The changes, to be applied in this order.
    pub operations: Vec<Operation>,
}

impl Outcome {
    /// Whether the dying checkpoint's links are (now) in place somewhere in the object.
    pub fn injected(&self) -> bool {
        self.skip.is_none()
    }
}

/// What became of one pod template.
#[derive(Debug, Serialize)]
pub struct TemplateReport {
    /// JSON pointer of the template; empty for a Pod.
    pub path: String,
    /// Whether its pods hold rank 0.
    #[serde(rename = "rankZero")]
    pub rank_zero: bool,
    /// Why this template was left alone.
    #[serde(rename = "skipReason")]
    pub skip: Option<Reason>,
    /// What was done outside the containers: annotations copied from the job, and the node affinity.
    pub actions: Vec<Action>,
    /// The chosen containers.
    pub containers: Vec<ContainerReport>,
}

/// What became of one chosen container.
#[derive(Debug, Serialize)]
pub struct ContainerReport {
    /// The container's name.
    pub name: String,
    /// Field by field, in the order of the chain.
    pub actions: Vec<Action>,
}

/// What became of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Action {
    /// `env.TTP_PORT`, `ports.9601`, `env.LD_PRELOAD`, `annotations.recover-strategy`, `affinity.nodeReadiness`.
    pub field: Cow<'static, str>,
    /// What was done.
    pub action: ActionKind,
    /// The value the field now has, as far as it can be told.
    pub value: Option<String>,
    /// Why.
    pub reason: Reason,
}

/// What was done to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionKind {
    /// It wasn't there.
    Added,
    /// It was there and was extended.
    Merged,
    /// It was there and stays as it is.
    Kept,
    /// It wasn't there and stays away.
    Skipped,
}

/// Something the user should know or mend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The word to search for.
    pub reason: Reason,
    /// A sentence that names container and field and says what to do.
    pub message: String,
}

impl Action {
    /// A field that was added because the chain needs it.
    pub fn added(field: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        let value = Some(value.into());
        Self { field: field.into(), action: ActionKind::Added, value, reason: Reason::Required }
    }

    /// A field that stays as it is.
    pub fn kept(field: impl Into<Cow<'static, str>>, value: Option<String>, reason: Reason) -> Self {
        Self { field: field.into(), action: ActionKind::Kept, value, reason }
    }

    /// A field that isn't added.
    pub fn skipped(field: impl Into<Cow<'static, str>>, reason: Reason) -> Self {
        Self { field: field.into(), action: ActionKind::Skipped, value: None, reason }
    }
}
