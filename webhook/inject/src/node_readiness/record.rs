//! What was changed in an affinity, for its undo.

use serde::{Deserialize, Serialize};

use crate::former::Former;
use crate::record::extend;
use crate::view::Slot;

pub(super) const AFFINITY: &str = "affinity";
pub(super) const NODE_AFFINITY: &str = "nodeAffinity";

/// The name of the requirements of the required term at `index`.
pub(super) fn expressions(index: usize) -> String {
    format!("matchExpressions/{index}")
}

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
    /// The required terms in which the user had the very same requirement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<usize>,
    /// Which of `affinity`, `nodeAffinity`, its two members and `matchExpressions/N` of term N weren't there before.
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

    /// Notes what a member is before it is made.
    pub(super) fn note<T>(&mut self, name: &str, member: &Slot<T>) {
        match member {
            Slot::Absent => self.absent.push(name.to_owned()),
            Slot::Null => self.null.push(name.to_owned()),
            Slot::Present(_) => {}
        }
    }

    /// What a member was before, when it wasn't there.
    pub(super) fn former(&self, name: &str) -> Option<Former> {
        Former::of(name, &self.absent, &self.null)
    }

    /// This older record extended by a newer one.
    #[must_use]
    pub(crate) fn extended_by(mut self, newer: Self) -> Self {
        if !self.required {
            // Later on the user's requirements can't be told from those that the older pass added.
            self.kept = newer.kept;
        }
        self.required |= newer.required;
        self.preferred = self.preferred.or(newer.preferred);
        extend(&mut self.absent, newer.absent);
        extend(&mut self.null, newer.null);
        self
    }
}
