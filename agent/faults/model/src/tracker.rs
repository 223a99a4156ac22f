//! From the snapshots of the sources to the faults of this node.
//!
//! A fault is active while any source reports it. A source that becomes unavailable ends nothing: what it reported last
//! stays. Sources may send events between two snapshots; an event only changes the last snapshot of its source.

mod escalate;
mod report;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::code::Code;
use crate::fault::{Classification, Delivery, Fault, FaultKind, Loss, Phase};
use crate::fault_id::{FaultId, fault_id};
use crate::rules::{EscalationTracker, SavedTrack};
use crate::source_update::{ActiveFault, Severity, SourceUpdate, Subject};

/// ClusterD accepts no higher physical id.
const LAST_DEVICE: u32 = 31;

/// The most faults that are followed at once. Sources report the others again.
pub const MAX_FAULTS: usize = 4096;

/// The level of a code, and why it has it.
pub type Classify<'a> = &'a dyn Fn(&Code, Option<Severity>) -> Classification;

/// What the tracker has to know of the node.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The current classification.
    pub classify: Classify<'a>,
    /// The physical ids of the node's devices; empty while their number is unknown.
    pub devices: &'a [u32],
    /// Milliseconds of a clock that never goes back within a process.
    pub now: u64,
    /// Whether notices are sent to ClusterD.
    pub notices: bool,
}

/// What happened to a fault, for Events, logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A source reports a new fault.
    Began(Fault),
    /// No source reports it any longer.
    Ended(Fault),
    /// A source reports an event that nothing ends.
    Happened(Fault),
}

/// Why a reported fault isn't followed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untracked {
    /// It is one of the node as a whole, and the node's devices aren't known.
    DevicesUnknown,
    /// [`MAX_FAULTS`] are followed.
    Full,
}

/// Whether an escalation rule reports it, then subject and code.
pub(crate) type Key = (bool, Subject, u64);

/// All faults of this node.
#[derive(Debug, Default)]
pub struct FaultTracker {
    node: String,
    /// The enabled sources; `None` for any.
    sources: Option<Vec<&'static str>>,
    /// What each source reported last.
    reports: BTreeMap<(String, Subject), BTreeMap<u64, (ActiveFault, u64)>>,
    faults: BTreeMap<String, Fault>,
    /// The ids of those that are active.
    active: BTreeMap<Key, String>,
    /// The last occurrence of each code, so that no two faults share an id if the clock goes back.
    last_since: BTreeMap<(Subject, u64), u64>,
    escalation: EscalationTracker,
    /// Counters of an earlier process, until the rules are known.
    saved_tracks: Option<Vec<SavedTrack>>,
    untracked: Option<Untracked>,
    /// Reports of devices that ClusterD can't know, and reports beyond any limit.
    dropped: u64,
    /// Whether anything changed that has to outlive this process.
    changed: bool,
}

impl FaultTracker {
    /// Without faults. Only `sources` can report the end of a fault.
    pub fn new(node: &str, sources: Option<Vec<&'static str>>) -> Self {
        Self { node: node.to_owned(), sources, ..Self::default() }
    }

    /// Continues with the faults and counters of an earlier process.
    pub fn restore(&mut self, faults: Vec<Fault>, tracks: Vec<SavedTrack>) {
        self.saved_tracks = Some(tracks);
        for mut fault in faults.into_iter().take(MAX_FAULTS) {
            // The earlier process may have ended the rank.
            fault.delivery.loss = Loss::Handled;
            let key = key(&fault);
            let last = self.last_since.entry((key.1, key.2)).or_default();
            *last = fault.since.max(*last);
            if fault.phase != Phase::Ending && fault.kind != FaultKind::Notice {
                self.active.insert(key, fault.id.clone());
            }
            self.faults.insert(fault.id.clone(), fault);
        }
    }

    /// Every fault that hasn't ended at ClusterD, by id.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults.values()
    }

    /// The faults that sources report.
    pub fn active(&self) -> impl Iterator<Item = &Fault> {
        self.active.values().filter_map(|id| self.faults.get(id))
    }

    pub fn get(&self, id: &str) -> Option<&Fault> {
        self.faults.get(id)
    }

    /// The counters of the escalation rules, for [`restore`](Self::restore).
    pub fn tracks(&self) -> Vec<SavedTrack> {
        self.saved_tracks.clone().unwrap_or_else(|| self.escalation.saved_tracks())
    }

    /// Whether anything has changed since the last call that has to outlive this process.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// Why a reported fault isn't followed.
    pub const fn untracked(&self) -> Option<Untracked> {
        self.untracked
    }

    /// How many reports were dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether an enabled source can report the end of `fault`.
    pub fn is_watched(&self, fault: &Fault) -> bool {
        is_watched(self.sources.as_deref(), fault)
    }

    /// Applies what a source reports.
    pub fn apply(&mut self, source: &str, seen: &SourceUpdate, context: Context<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        match seen {
            SourceUpdate::Snapshot { subject, faults, at } => {
                self.replace(source, *subject, faults, *at, context, &mut changes);
            }
            SourceUpdate::Event(event) => self.event(source, event, context, &mut changes),
            SourceUpdate::Unavailable { .. } => {}
        }
        self.escalate(context, &mut changes);
        changes
    }

    /// Follows reported faults that couldn't be followed before, and applies the escalation rules.
    pub fn refresh(&mut self, context: Context<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.untracked.take().is_some() {
            let reports = std::mem::take(&mut self.reports);
            for ((source, subject), faults) in &reports {
                for (active_fault, at) in faults.values() {
                    self.report((source, *subject), active_fault, *at, context, &mut changes);
                }
            }
            self.reports = reports;
        }
        self.escalate(context, &mut changes);
        changes
    }

    /// Classifies all faults again. ClusterD doesn't accept another class for an id that it has, so that a fault which it
    /// may know ends and begins again.
    pub fn reclassify(&mut self, context: Context<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        for key in self.active.keys().copied().collect::<Vec<Key>>() {
            let Some(fault) = self.active.get(&key).and_then(|id| self.faults.get_mut(id)) else { continue };
            let classification = (context.classify)(&fault.code, fault.severity);
            if fault.kind == FaultKind::Raised || classification.level == fault.classification.level {
                continue;
            }
            let before = fault.clone();
            fault.classification = classification;
            self.changed = true;
            if fault.handling() == before.handling() {
                continue;
            }
            let mut next = fault.clone();
            next.phase = Phase::Settling;
            next.delivery = Delivery {
                reported_since_start: before.delivery.reported_since_start,
                ..Delivery::default()
            };
            if !before.may_be_known() {
                *fault = next;
                continue;
            }
            fault.classification = before.classification.clone();
            self.end(key, &mut changes);
            changes.push(Change::Began(self.begin(key, next)));
        }
        changes
    }

    /// Takes over a fault that ClusterD shows under `id` and this process didn't know: the same fault is active here and
    /// wasn't sent.
    pub(crate) fn adopt(&mut self, id: &str, handling: Option<crate::Handling>) -> bool {
        let Some(parsed) = FaultId::parse(id) else { return false };
        let key = (false, parsed.subject, parsed.code.number());
        let Entry::Occupied(mut active) = self.active.entry(key) else { return false };
        let Some(fault) = self.faults.get(active.get()) else { return false };
        let is_own = fault_id(&self.node, parsed.subject, &parsed.code, parsed.since) == id;
        if !is_own || fault.may_be_known() || Some(fault.handling()) != handling {
            return false;
        }
        let Some(mut fault) = self.faults.remove(active.get()) else { return false };
        (fault.id, fault.since, fault.phase) = (id.to_owned(), parsed.since, Phase::Confirmed);
        // The process that sent it may have ended the rank.
        fault.delivery.loss = Loss::Handled;
        active.insert(fault.id.clone());
        let last = self.last_since.entry((key.1, key.2)).or_default();
        *last = parsed.since.max(*last);
        self.faults.insert(fault.id.clone(), fault);
        self.changed = true;
        true
    }

    /// The faults and the enabled sources, for the reconciler.
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        Parts { faults: &mut self.faults, sources: self.sources.as_deref(), changed: &mut self.changed }
    }

    /// Gives `fault` its id and makes it active.
    fn begin(&mut self, key: Key, mut fault: Fault) -> Fault {
        fault.since = self.unique_since(&fault);
        fault.id = fault_id(&self.node, fault.subject, &fault.code, fault.since);
        self.active.insert(key, fault.id.clone());
        self.faults.insert(fault.id.clone(), fault.clone());
        self.changed = true;
        fault
    }

    /// `source` no longer reports the fault.
    fn clear(&mut self, key: Key, source: &str, changes: &mut Vec<Change>) {
        let Some(fault) = self.active.get(&key).and_then(|id| self.faults.get_mut(id)) else { return };
        self.changed |= fault.sources.remove(source);
        if fault.sources.is_empty() {
            self.end(key, changes);
        }
    }

    /// No source reports the fault. It is removed at once if ClusterD can't have it.
    fn end(&mut self, key: Key, changes: &mut Vec<Change>) {
        let Some(id) = self.active.remove(&key) else { return };
        let Some(fault) = self.faults.get_mut(&id) else { return };
        self.changed = true;
        let ended = if fault.may_be_known() && !fault.delivery.is_gone {
            // What was withdrawn has been sent already.
            if fault.phase != Phase::Withdrawn {
                fault.delivery = Delivery::default();
            }
            fault.phase = Phase::Ending;
            fault.clone()
        } else {
            let Some(fault) = self.faults.remove(&id) else { return };
            fault
        };
        changes.push(Change::Ended(ended));
    }

    /// The time of the fault, or a millisecond after the last one of its code.
    fn unique_since(&mut self, fault: &Fault) -> u64 {
        let key = (fault.subject, fault.code.number());
        let since =
            self.last_since.get(&key).map_or(fault.since, |&last| fault.since.max(last.saturating_add(1)));
        if self.last_since.len() >= 2 * MAX_FAULTS {
            let active = &self.active;
            self.last_since.retain(|&(subject, code), _| active.contains_key(&(false, subject, code)));
        }
        self.last_since.insert(key, since);
        since
    }
}

/// The parts that the reconciler works on.
pub(crate) struct Parts<'a> {
    pub(crate) faults: &'a mut BTreeMap<String, Fault>,
    pub(crate) sources: Option<&'a [&'static str]>,
    pub(crate) changed: &'a mut bool,
}

pub(crate) fn is_watched(sources: Option<&[&'static str]>, fault: &Fault) -> bool {
    sources.is_none_or(|sources| fault.sources.iter().any(|source| sources.contains(&source.as_str())))
}

pub(crate) fn key(fault: &Fault) -> Key {
    (fault.kind == FaultKind::Raised, fault.subject, fault.code.number())
}

#[cfg(test)]
mod tests;
