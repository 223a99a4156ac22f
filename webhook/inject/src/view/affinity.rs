//! Views of `spec.affinity`.

use serde::de::IgnoredAny;
use swansong_api::labels::DUMP_READY;

use super::json::{Slot, Text, view};

view! {
    /// View of `spec.affinity`; affinity to other pods isn't read.
    pub struct Affinity<'a> {
        /// Affinity to nodes.
        pub node_affinity: "nodeAffinity" => Slot<NodeAffinity<'a>>,
    }

    /// View of `spec.affinity.nodeAffinity`.
    pub struct NodeAffinity<'a> {
        /// Requirements of nodes.
        pub required: "requiredDuringSchedulingIgnoredDuringExecution" => Slot<NodeSelector<'a>>,
        /// Preferences among nodes.
        pub preferred: "preferredDuringSchedulingIgnoredDuringExecution" => Slot<Vec<Slot<PreferredTerm<'a>>>>,
    }

    /// The required part: a node has to match one of the terms.
    pub struct NodeSelector<'a> {
        /// The alternatives, of which a node has to match one.
        pub terms: "nodeSelectorTerms" => Slot<Vec<Slot<NodeSelectorTerm<'a>>>>,
    }

    /// One alternative; a node has to match all of its requirements.
    pub struct NodeSelectorTerm<'a> {
        /// Requirements of labels.
        pub match_expressions: "matchExpressions" => Slot<Vec<Slot<Requirement<'a>>>>,
        /// Requirements of fields.
        pub match_fields: "matchFields" => Slot<Vec<IgnoredAny>>,
    }

    /// One weighted preference.
    pub struct PreferredTerm<'a> {
        /// From 1 to 100.
        pub weight: "weight" => Slot<i64>,
        pub preference: "preference" => Slot<NodeSelectorTerm<'a>>,
    }

    /// The requirement of one label.
    pub struct Requirement<'a> {
        /// The label's key.
        pub key: "key" => Slot<Text<'a>>,
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        pub operator: "operator" => Slot<Text<'a>>,
        /// Operands of the operator.
        pub values: "values" => Slot<Vec<Slot<Text<'a>>>>,
    }
}

impl Requirement<'_> {
    /// Whether it is about [`DUMP_READY`].
    pub fn is_about_readiness(&self) -> bool {
        self.key.present().is_some_and(|key| &**key == DUMP_READY)
    }

    /// Whether it equals the injected one.
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

    /// Its requirements of labels, without `null` entries, which Kubernetes refuses.
    pub fn requirements(&self) -> impl Iterator<Item = (usize, &Requirement<'_>)> {
        let entries = self.match_expressions.items().iter().enumerate();
        entries.filter_map(|(index, entry)| Some((index, entry.present()?)))
    }

    /// Whether one of its requirements is about [`DUMP_READY`].
    pub fn is_about_readiness(&self) -> bool {
        self.requirements().any(|(_, requirement)| requirement.is_about_readiness())
    }

    /// The index of the injected requirement.
    pub fn asks_for_readiness(&self) -> Option<usize> {
        let mut asking = self.requirements().filter(|(_, requirement)| requirement.asks_for_readiness());
        asking.next().map(|(index, _)| index)
    }

    /// Whether it has the injected requirement only.
    pub fn asks_for_nothing_else(&self) -> bool {
        self.asks_for_readiness().is_some()
            && self.match_expressions.items().len() == 1
            && self.match_fields.items().is_empty()
            && self.unread == 0
    }
}
