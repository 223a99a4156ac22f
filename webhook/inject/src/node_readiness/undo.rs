//! Takes back what was asked of nodes.

use swansong_api::labels::DUMP_READY;
use swansong_api::record::NodeReadinessRecord;

use super::{AFFINITY, NODE_AFFINITY, PREFERRED, REQUIRED, original};
use crate::former::Former;
use crate::operation::Operation;
use crate::undo::Undo;
use crate::view::{NodeAffinity, NodeSelectorTerm, PodSpec, PreferredTerm, Slot};

/// What becomes of a member of nodeAffinity.
enum Fate {
    /// It is left as it is, or changed inside.
    Stays(Vec<Operation>),
    /// It is taken away.
    Goes,
    /// It becomes `null` again.
    Nulled,
}

impl From<Former> for Fate {
    fn from(former: Former) -> Self {
        match former {
            Former::Absent => Self::Goes,
            Former::Null => Self::Nulled,
        }
    }
}

/// The operations that take back what `record` says of the pod template at `path`. What the user changed or removed
/// meanwhile is passed over.
pub(crate) fn undo(path: &str, spec: &PodSpec<'_>, record: &NodeReadinessRecord, undo: &mut Undo) {
    let Some(affinity) = spec.affinity.present() else { return };
    let Some(node) = affinity.node_affinity.present() else { return };
    let path = format!("{path}/spec/affinity");
    let node_path = format!("{path}/nodeAffinity");
    let required_path = format!("{node_path}/{REQUIRED}");
    let preferred_path = format!("{node_path}/{PREFERRED}");
    let required = undo_required(&required_path, node, record);
    let preferred = undo_preferred(&preferred_path, node, record);
    let Undo { operations, stays } = undo;
    let untouched = |fate: &Fate| matches!(fate, Fate::Stays(changes) if changes.is_empty());
    if record.required && untouched(&required) && required_speaks_of_readiness(node, record) {
        stays.push(format!(
            "what the required node affinity says of {DUMP_READY} was changed since and stays"
        ));
    }
    if record.preferred.is_some() && untouched(&preferred) && preferred_speaks_of_readiness(node) {
        stays.push(format!(
            "what the preferred node affinity says of {DUMP_READY} was changed since and stays"
        ));
    }
    let empty = |slot_is_absent: bool, fate: &Fate| slot_is_absent || matches!(fate, Fate::Goes);
    let emptied = node.unread == 0
        && empty(matches!(node.required, Slot::Absent), &required)
        && empty(matches!(node.preferred, Slot::Absent), &preferred);
    if emptied && let Some(former) = original(record, NODE_AFFINITY) {
        let whole = original(record, AFFINITY).filter(|_| affinity.unread == 0);
        operations.push(match whole {
            Some(former) => former.restore(path),
            None => former.restore(node_path),
        });
        return;
    }
    for (fate, path) in [(required, required_path), (preferred, preferred_path)] {
        match fate {
            Fate::Stays(changes) => operations.extend(changes),
            Fate::Goes => operations.push(Former::Absent.restore(path)),
            Fate::Nulled => operations.push(Former::Null.restore(path)),
        }
    }
}

fn required_speaks_of_readiness(node: &NodeAffinity<'_>, record: &NodeReadinessRecord) -> bool {
    let terms = node.required.present().map_or(&[][..], |required| required.terms.items());
    let mut others = terms.iter().enumerate().filter(|(index, _)| !record.kept.contains(index));
    others.any(|(_, term)| term.present().is_some_and(NodeSelectorTerm::is_about_readiness))
}

fn preferred_speaks_of_readiness(node: &NodeAffinity<'_>) -> bool {
    let mut terms = node.preferred.items().iter().filter_map(|term| term.present()?.preference.present());
    terms.any(NodeSelectorTerm::is_about_readiness)
}

fn undo_required(path: &str, node: &NodeAffinity<'_>, record: &NodeReadinessRecord) -> Fate {
    let Some(required) = node.required.present().filter(|_| record.required) else {
        return Fate::Stays(Vec::new());
    };
    let terms = required.terms.items();
    let mut changes = Vec::new();
    let mut ours = Vec::new();
    for (index, term) in terms.iter().enumerate().filter(|(index, _)| !record.kept.contains(index)) {
        let Some(term) = term.present() else { continue };
        if term.asks_for_nothing_else() {
            // Without its only requirement it would match no node.
            ours.push(index);
        } else if let Some(at) = term.asks_for_readiness() {
            changes.push(undo_term(&format!("{path}/nodeSelectorTerms/{index}"), index, at, term, record));
        }
    }
    if ours.len() == terms.len() && !ours.is_empty() && required.unread == 0 {
        // Kubernetes refuses a selector without terms.
        return original(record, REQUIRED).unwrap_or(Former::Absent).into();
    }
    let removed = ours.into_iter().rev();
    changes.extend(removed.map(|index| Operation::remove(format!("{path}/nodeSelectorTerms/{index}"))));
    Fate::Stays(changes)
}

/// Takes the requirement at `at` out of a term of the user.
fn undo_term(
    path: &str,
    index: usize,
    at: usize,
    term: &NodeSelectorTerm<'_>,
    record: &NodeReadinessRecord,
) -> Operation {
    let list = format!("{path}/matchExpressions");
    let emptied = term.match_expressions.items().len() == 1;
    match original(record, &super::expressions(index)).filter(|_| emptied) {
        Some(former) => former.restore(list),
        None => Operation::remove(format!("{list}/{at}")),
    }
}

fn undo_preferred(path: &str, node: &NodeAffinity<'_>, record: &NodeReadinessRecord) -> Fate {
    let preferences = node.preferred.items();
    let ours = record.preferred.and_then(|weight| {
        preferences.iter().rposition(|term| term.present().is_some_and(|term| is_ours(term, weight)))
    });
    let Some(index) = ours else { return Fate::Stays(Vec::new()) };
    match original(record, PREFERRED).filter(|_| preferences.len() == 1) {
        Some(former) => former.into(),
        None => Fate::Stays(vec![Operation::remove(format!("{path}/{index}"))]),
    }
}

fn is_ours(term: &PreferredTerm<'_>, weight: i64) -> bool {
    term.unread == 0
        && term.weight.present() == Some(&weight)
        && term.preference.present().is_some_and(NodeSelectorTerm::asks_for_nothing_else)
}
