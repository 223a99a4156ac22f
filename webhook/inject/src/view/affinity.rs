//! `spec.affinity`, as far as it chooses nodes.

use serde::de::IgnoredAny;
use swansong_api::labels::DUMP_READY;

use super::json::{Slot, Text, view};

view! {
    /// `spec.affinity`; affinity to other pods is never read.
    pub struct Affinity<'a> {
        /// Which nodes the pod is drawn to.
        pub node_affinity: "nodeAffinity" => Slot<NodeAffinity<'a>>,
    }

    /// `spec.affinity.nodeAffinity`.
    pub struct NodeAffinity<'a> {
        /// What a node must have.
        pub required: "requiredDuringSchedulingIgnoredDuringExecution" => Slot<NodeSelector<'a>>,
        /// What a node had better have.
        pub preferred: "preferredDuringSchedulingIgnoredDuringExecution" => Slot<Vec<Slot<PreferredTerm<'a>>>>,
    }

    /// The required part: a node has to match one of the terms.
    pub struct NodeSelector<'a> {
        /// Alternatives.
        pub terms: "nodeSelectorTerms" => Slot<Vec<Slot<NodeSelectorTerm<'a>>>>,
    }

    /// One alternative: a node has to match everything in it.
    pub struct NodeSelectorTerm<'a> {
        /// What its labels must be.
        pub match_expressions: "matchExpressions" => Slot<Vec<Slot<Requirement<'a>>>>,
        /// What its fields must be.
        pub match_fields: "matchFields" => Slot<Vec<IgnoredAny>>,
    }

    /// One preference.
    pub struct PreferredTerm<'a> {
        /// 1–100, added up by node.
        pub weight: "weight" => Slot<i64>,
        /// What the node had better match.
        pub preference: "preference" => Slot<NodeSelectorTerm<'a>>,
    }

    /// What one label must be.
    pub struct Requirement<'a> {
        /// The label.
        pub key: "key" => Slot<Text<'a>>,
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        pub operator: "operator" => Slot<Text<'a>>,
        /// What the operator compares with.
        pub values: "values" => Slot<Vec<Slot<Text<'a>>>>,
    }
}

impl Requirement<'_> {
    /// Whether it speaks of [`DUMP_READY`], whatever it says.
    pub fn is_about_readiness(&self) -> bool {
        self.key.present().is_some_and(|key| &**key == DUMP_READY)
    }

    /// Whether it is just the one that is injected.
    pub fn asks_for_readiness(&self) -> bool {
        self.is_about_readiness()
            && self.operator.present().is_some_and(|operator| &**operator == "In")
            && matches!(self.values.items(), [Slot::Present(value)] if &**value == "true")
            && self.unread == 0
    }
}

impl NodeSelectorTerm<'_> {
    /// A term without any requirement matches no node (Kubernetes: `NodeSelectorTerm`).
    pub fn matches_nothing(&self) -> bool {
        self.match_expressions.items().is_empty() && self.match_fields.items().is_empty()
    }

    /// What it requires of labels; `null` entries, which Kubernetes refuses, are left out.
    pub fn requirements(&self) -> impl Iterator<Item = (usize, &Requirement<'_>)> {
        let entries = self.match_expressions.items().iter().enumerate();
        entries.filter_map(|(index, entry)| Some((index, entry.present()?)))
    }

    /// Whether it speaks of [`DUMP_READY`].
    pub fn is_about_readiness(&self) -> bool {
        self.requirements().any(|(_, requirement)| requirement.is_about_readiness())
    }

    /// The place of the requirement that is injected.
    pub fn asks_for_readiness(&self) -> Option<usize> {
        let mut asking = self.requirements().filter(|(_, requirement)| requirement.asks_for_readiness());
        asking.next().map(|(index, _)| index)
    }

    /// Whether the requirement that is injected is all there is in it.
    pub fn asks_for_nothing_else(&self) -> bool {
        self.asks_for_readiness().is_some()
            && self.match_expressions.items().len() == 1
            && self.match_fields.items().is_empty()
            && self.unread == 0
    }
}
