//! Removes the injected node affinity.

use swansong_api::labels::DUMP_READY;
use swansong_api::record::NodeReadinessRecord;

use super::Undo;
use crate::node_readiness::{AFFINITY, NODE_AFFINITY, PREFERRED, REQUIRED, expressions, original};
use crate::operation::Operation;
use crate::original::Original;
use crate::view::{NodeAffinity, NodeSelectorTerm, PodSpec, PreferredTerm, Slot};

/// The undo of a member of nodeAffinity.
enum MemberUndo {
    /// It remains, with these changes inside it.
    Edit(Vec<Operation>),
    Remove,
    /// It becomes `null` again.
    SetNull,
}

impl From<Original> for MemberUndo {
    fn from(former: Original) -> Self {
        match former {
            Original::Absent => Self::Remove,
            Original::Null => Self::SetNull,
        }
    }
}

/// Undoes the changes of `record` to the pod template at `path`, except what the user changed or removed since.
pub(super) fn undo(path: &str, spec: &PodSpec<'_>, record: &NodeReadinessRecord, undo: &mut Undo) {
    let Some(affinity) = spec.affinity.present() else { return };
    let Some(node) = affinity.node_affinity.present() else { return };
    let path = format!("{path}/spec/affinity");
    let node_path = format!("{path}/nodeAffinity");
    let required_path = format!("{node_path}/{REQUIRED}");
    let preferred_path = format!("{node_path}/{PREFERRED}");
    let required = undo_required(&required_path, node, record);
    let preferred = undo_preferred(&preferred_path, node, record);
    let Undo { operations, remaining } = undo;
    let is_unchanged = |undo: &MemberUndo| matches!(undo, MemberUndo::Edit(changes) if changes.is_empty());
    if record.required && is_unchanged(&required) && required_names_readiness(node, record) {
        remaining.push(format!(
            "the requirement of {DUMP_READY} in the required node affinity was changed since and stays"
        ));
    }
    if record.preferred.is_some() && is_unchanged(&preferred) && preferred_names_readiness(node) {
        remaining.push(format!(
            "the preference for {DUMP_READY} in the preferred node affinity was changed since and stays"
        ));
    }
    let empty =
        |slot_is_absent: bool, undo: &MemberUndo| slot_is_absent || matches!(undo, MemberUndo::Remove);
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
    for (undo, path) in [(required, required_path), (preferred, preferred_path)] {
        match undo {
            MemberUndo::Edit(changes) => operations.extend(changes),
            MemberUndo::Remove => operations.push(Original::Absent.restore(path)),
            MemberUndo::SetNull => operations.push(Original::Null.restore(path)),
        }
    }
}

fn required_names_readiness(node: &NodeAffinity<'_>, record: &NodeReadinessRecord) -> bool {
    let terms = node.required.present().map_or(&[][..], |required| required.terms.items());
    let mut others = terms.iter().enumerate().filter(|(index, _)| !record.kept.contains(index));
    others.any(|(_, term)| term.present().is_some_and(NodeSelectorTerm::is_about_readiness))
}

fn preferred_names_readiness(node: &NodeAffinity<'_>) -> bool {
    let mut terms = node.preferred.items().iter().filter_map(|term| term.present()?.preference.present());
    terms.any(NodeSelectorTerm::is_about_readiness)
}

fn undo_required(path: &str, node: &NodeAffinity<'_>, record: &NodeReadinessRecord) -> MemberUndo {
    let Some(required) = node.required.present().filter(|_| record.required) else {
        return MemberUndo::Edit(Vec::new());
    };
    let terms = required.terms.items();
    let mut changes = Vec::new();
    let mut ours = Vec::new();
    for (index, term) in terms.iter().enumerate().filter(|(index, _)| !record.kept.contains(index)) {
        let Some(term) = term.present() else { continue };
        if term.asks_for_nothing_else() {
            // A term without requirements would match no node.
            ours.push(index);
        } else if let Some(at) = term.asks_for_readiness() {
            changes.push(undo_term(&format!("{path}/nodeSelectorTerms/{index}"), index, at, term, record));
        }
    }
    if ours.len() == terms.len() && !ours.is_empty() && required.unread == 0 {
        // Kubernetes refuses a selector without terms.
        return original(record, REQUIRED).unwrap_or(Original::Absent).into();
    }
    let removed = ours.into_iter().rev();
    changes.extend(removed.map(|index| Operation::remove(format!("{path}/nodeSelectorTerms/{index}"))));
    MemberUndo::Edit(changes)
}

/// Removes the requirement at `at` from a term of the user.
fn undo_term(
    path: &str,
    index: usize,
    at: usize,
    term: &NodeSelectorTerm<'_>,
    record: &NodeReadinessRecord,
) -> Operation {
    let list = format!("{path}/matchExpressions");
    let emptied = term.match_expressions.items().len() == 1;
    match original(record, &expressions(index)).filter(|_| emptied) {
        Some(former) => former.restore(list),
        None => Operation::remove(format!("{list}/{at}")),
    }
}

fn undo_preferred(path: &str, node: &NodeAffinity<'_>, record: &NodeReadinessRecord) -> MemberUndo {
    let preferences = node.preferred.items();
    let ours = record.preferred.and_then(|weight| {
        preferences.iter().rposition(|term| term.present().is_some_and(|term| is_ours(term, weight)))
    });
    let Some(index) = ours else { return MemberUndo::Edit(Vec::new()) };
    match original(record, PREFERRED).filter(|_| preferences.len() == 1) {
        Some(former) => former.into(),
        None => MemberUndo::Edit(vec![Operation::remove(format!("{path}/{index}"))]),
    }
}

fn is_ours(term: &PreferredTerm<'_>, weight: i64) -> bool {
    term.unread == 0
        && term.weight.present() == Some(&weight)
        && term.preference.present().is_some_and(NodeSelectorTerm::asks_for_nothing_else)
}
