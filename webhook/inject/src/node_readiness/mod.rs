//! Adds a node affinity for nodes that the agent reports as able to save a dying job.
//!
//! The user's affinity is extended, never replaced. Terms of a *required* affinity are alternatives, so each of them gets
//! the requirement; a *preferred* one becomes a further term. An affinity or `nodeSelector` that already names the label
//! is left unchanged.

use serde_json::{Value, json};
use swansong_api::labels::DUMP_READY;
use swansong_api::record::NodeReadinessRecord;

use super::operation::Operation;
use super::report::{Action, ActionKind, Warning};
use super::view::{Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PodSpec, Slot};
use crate::original::Original;
use crate::policy::NodeReadiness;
use crate::reason::Reason;

/// Name of the field in reports.
pub const FIELD: &str = "affinity.nodeReadiness";

/// Half of the maximum, so that users can give other preferences more or less weight.
pub const WEIGHT: i64 = 50;

/// Members of `spec.affinity.nodeAffinity`.
pub(crate) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
pub(crate) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Names in the lists of a record, beside [`REQUIRED`] and [`PREFERRED`].
pub(crate) const AFFINITY: &str = "affinity";
pub(crate) const NODE_AFFINITY: &str = "nodeAffinity";

/// The name of the requirements of the required term at `index`.
pub(crate) fn expressions(index: usize) -> String {
    format!("matchExpressions/{index}")
}

/// Records whether a member is absent or `null` before it is created.
fn note<T>(record: &mut NodeReadinessRecord, name: &str, member: &Slot<T>) {
    match member {
        Slot::Absent => record.absent.push(name.to_owned()),
        Slot::Null => record.null.push(name.to_owned()),
        Slot::Present(_) => {}
    }
}

/// What a member was before it was created; `None` if it existed.
pub(crate) fn original(record: &NodeReadinessRecord, name: &str) -> Option<Original> {
    Original::of(name, &record.absent, &record.null)
}

/// The change to one template.
pub(super) struct ReadinessRequest {
    pub(super) action: Action,
    pub(super) record: NodeReadinessRecord,
}

impl ReadinessRequest {
    fn unchanged(action: Action) -> Self {
        Self { action, record: NodeReadinessRecord::default() }
    }
}

/// Adds `wanted` to the affinity of the pod template at `path`; `None` if it is off.
///
/// Messages start with `prefix`.
pub(super) fn request(
    wanted: NodeReadiness,
    path: &str,
    prefix: &str,
    spec: &PodSpec<'_>,
    operations: &mut Vec<Operation>,
    warnings: &mut Vec<Warning>,
) -> Option<ReadinessRequest> {
    if wanted == NodeReadiness::Off {
        return None;
    }
    if spec.node_name.present().is_some_and(|name| !name.is_empty()) {
        return Some(ReadinessRequest::unchanged(Action::skipped(FIELD, Reason::NodeAlreadyChosen)));
    }
    let selected = spec.node_selector.present().and_then(|labels| labels.get(DUMP_READY));
    if let Some(value) = selected.and_then(Slot::present) {
        let value = format!("nodeSelector {DUMP_READY}={}", &**value);
        return Some(ReadinessRequest::unchanged(kept(!value.ends_with("=true"), Some(value))));
    }
    let mut edit = AffinityEdit {
        path: format!("{path}/spec/affinity"),
        affinity: &spec.affinity,
        record: NodeReadinessRecord::default(),
        operations,
    };
    let action = match wanted {
        NodeReadiness::Prefer => edit.prefer(),
        _ => edit.require(),
    };
    if action.reason == Reason::NodeSelectorMatchesNothing {
        let message = format!(
            "{prefix}nodeReadiness wasn't added: the required node affinity has no term that can match a node; \
             correct or remove nodeSelectorTerms"
        );
        warnings.push(Warning { reason: action.reason, message });
    }
    Some(ReadinessRequest { action, record: edit.record })
}

/// The change of one affinity.
struct AffinityEdit<'o, 'a> {
    /// JSON pointer of the affinity.
    path: String,
    affinity: &'o Slot<Affinity<'a>>,
    record: NodeReadinessRecord,
    operations: &'o mut Vec<Operation>,
}

impl<'o, 'a> AffinityEdit<'o, 'a> {
    fn node_affinity(&self) -> Option<&'o NodeAffinity<'a>> {
        self.affinity.present()?.node_affinity.present()
    }

    fn required(&self) -> Option<&'o NodeSelector<'a>> {
        self.node_affinity()?.required.present()
    }

    fn prefer(&mut self) -> Action {
        let preferred = self.node_affinity().map(|node| &node.preferred);
        let preferences = preferred.map_or(&[][..], Slot::items).iter().filter_map(Slot::present);
        let required = self.required().map_or(&[][..], |required| required.terms.items());
        let terms = preferences.filter_map(|term| term.preference.present());
        let about: Vec<_> = terms
            .chain(required.iter().filter_map(Slot::present))
            .filter(|term| term.is_about_readiness())
            .collect();
        if !about.is_empty() {
            let own = !about.iter().any(|term| term.asks_for_readiness().is_some());
            return kept(own, Some("prefer".to_owned()).filter(|_| !own));
        }
        let term = json!({ "weight": WEIGHT, "preference": term() });
        self.record.preferred = Some(WEIGHT);
        if let Some(Slot::Present(_)) = preferred {
            self.operations.push(Operation::add(format!("{}/nodeAffinity/{PREFERRED}/-", self.path), &term));
            merged(format!("prefer, weight {WEIGHT}"))
        } else {
            self.add_member(PREFERRED, preferred, &json!([term]));
            added(format!("prefer, weight {WEIGHT}"))
        }
    }

    fn require(&mut self) -> Action {
        let Some(required) = self.required() else {
            self.record.required = true;
            let required = self.node_affinity().map(|node| &node.required);
            self.add_member(REQUIRED, required, &json!({ "nodeSelectorTerms": [term()] }));
            return added("require");
        };
        let terms = || required.terms.items().iter().map(Slot::present).enumerate();
        // An empty term matches no node; with our requirement it would match nodes that the user excluded.
        let usable = || {
            let usable = terms().filter_map(|(index, term)| Some((index, term?)));
            usable.filter(|(_, term)| !term.matches_nothing())
        };
        if usable().next().is_none() {
            return Action::skipped(FIELD, Reason::NodeSelectorMatchesNothing);
        }
        if usable().all(|(_, term)| term.is_about_readiness()) {
            let own = usable().any(|(_, term)| term.asks_for_readiness().is_none());
            return kept(own, Some("require".to_owned()).filter(|_| !own));
        }
        self.record.required = true;
        self.record.kept = usable()
            .filter(|(_, term)| term.asks_for_readiness().is_some())
            .map(|(index, _)| index)
            .collect();
        for (index, term) in usable().filter(|(_, term)| !term.is_about_readiness()) {
            self.extend_term(index, term);
        }
        merged("require")
    }

    /// Adds the requirement to a term of the user.
    fn extend_term(&mut self, index: usize, term: &NodeSelectorTerm<'_>) {
        let list =
            format!("{}/nodeAffinity/{REQUIRED}/nodeSelectorTerms/{index}/matchExpressions", self.path);
        note(&mut self.record, &expressions(index), &term.match_expressions);
        self.operations.push(match term.match_expressions {
            Slot::Present(_) => Operation::add(format!("{list}/-"), &requirement()),
            // `add` on a member that is `null` replaces it (RFC 6902).
            Slot::Absent | Slot::Null => Operation::add(list, &json!([requirement()])),
        });
    }

    /// Adds a missing member of nodeAffinity and its missing parents.
    fn add_member<T>(&mut self, name: &str, member: Option<&Slot<T>>, value: &Value) {
        let node = self.affinity.present().map(|affinity| &affinity.node_affinity);
        note(&mut self.record, AFFINITY, self.affinity);
        note(&mut self.record, NODE_AFFINITY, node.unwrap_or(&Slot::Absent));
        note(&mut self.record, name, member.unwrap_or(&Slot::Absent));
        let path = &self.path;
        self.operations.push(match (node, member) {
            (None, _) => Operation::add(path.clone(), &json!({ "nodeAffinity": { name: value } })),
            (Some(_), None) => Operation::add(format!("{path}/nodeAffinity"), &json!({ name: value })),
            (Some(_), Some(_)) => Operation::add(format!("{path}/nodeAffinity/{name}"), value),
        });
    }
}

fn requirement() -> Value {
    json!({ "key": DUMP_READY, "operator": "In", "values": ["true"] })
}

fn term() -> Value {
    json!({ "matchExpressions": [requirement()] })
}

fn added(value: impl Into<String>) -> Action {
    Action { reason: Reason::NodeReadiness, ..Action::added(FIELD, value) }
}

fn merged(value: impl Into<String>) -> Action {
    Action { action: ActionKind::Merged, ..added(value) }
}

/// `own`: the value differs from the one that would be added.
fn kept(own: bool, value: Option<String>) -> Action {
    Action::kept(FIELD, value, if own { Reason::UserValueKept } else { Reason::AlreadyPresent })
}
