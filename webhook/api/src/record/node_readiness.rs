//! What an injection changed in a node affinity.

use serde::{Deserialize, Serialize};

/// What was changed in the node affinity of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeReadinessRecord {
    /// The weight of the preference that was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<i64>,
    /// Whether the requirement was added to the required terms.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// The required terms in which the user had the same requirement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<usize>,
    /// Which of `affinity`, `nodeAffinity`, its two members and `matchExpressions/N` of term N were absent before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Which of them were `null` before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub null: Vec<String>,
}

impl NodeReadinessRecord {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This older record extended by a newer one.
    #[must_use]
    pub fn extended_by(mut self, newer: Self) -> Self {
        if !self.required {
            // The newer pass takes a requirement that the older pass added for one of the user.
            self.kept = newer.kept;
        }
        self.required |= newer.required;
        self.preferred = self.preferred.or(newer.preferred);
        super::extend(&mut self.absent, newer.absent);
        super::extend(&mut self.null, newer.null);
        self
    }
}
