//! Reports of sources: snapshots, and events between them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Context, FaultTracker, Key, LAST_DEVICE, MAX_FAULTS, Untracked};
use crate::fault::{Delivery, Fault, FaultKind, Phase};
use crate::fault_id::fault_id;
use crate::source_update::{ActiveFault, Assertion, FaultEvent, Subject};

impl FaultTracker {
    pub(super) fn replace(
        &mut self,
        source: &str,
        subject: Subject,
        active_fault: &[ActiveFault],
        at: u64,
        context: Context<'_>,
        changes: &mut Vec<Change>,
    ) {
        if matches!(subject, Subject::Npu(id) if id > LAST_DEVICE) {
            self.dropped += active_fault.len() as u64;
            return;
        }
        let keys = (false, subject, 0)..=(false, subject, u64::MAX);
        let reported: BTreeSet<u64> = active_fault.iter().map(|fault| fault.code.number()).collect();
        for key in self.active.range(keys).map(|(key, _)| *key).collect::<Vec<Key>>() {
            if !reported.contains(&key.2) {
                self.clear(key, source, changes);
            }
        }
        let report = active_fault.iter().map(|fault| (fault.code.number(), (fault.clone(), at)));
        self.reports.insert((source.to_owned(), subject), report.take(MAX_FAULTS).collect());
        for fault in active_fault {
            self.report((source, subject), fault, at, context, changes);
        }
    }

    pub(super) fn event(
        &mut self,
        source: &str,
        event: &FaultEvent,
        context: Context<'_>,
        changes: &mut Vec<Change>,
    ) {
        let FaultEvent { subject, at, .. } = *event;
        let number = event.code.number();
        let active_fault =
            ActiveFault { code: event.code.clone(), severity: event.severity, name: event.name.clone() };
        match event.assertion {
            Assertion::Occur => {
                let total: usize = self.reports.values().map(BTreeMap::len).sum();
                if total < 2 * MAX_FAULTS {
                    let reports = self.reports.entry((source.to_owned(), subject)).or_default();
                    reports.entry(number).or_insert_with(|| (active_fault.clone(), at));
                }
                self.report((source, subject), &active_fault, at, context, changes);
            }
            Assertion::Recover => {
                if let Some(reports) = self.reports.get_mut(&(source.to_owned(), subject)) {
                    reports.remove(&number);
                }
                self.clear((false, subject, number), source, changes);
            }
            Assertion::Once => self.notice((source, subject), &active_fault, at, context, changes),
        }
    }

    pub(super) fn report(
        &mut self,
        (source, subject): (&str, Subject),
        active_fault: &ActiveFault,
        at: u64,
        context: Context<'_>,
        changes: &mut Vec<Change>,
    ) {
        let key = (false, subject, active_fault.code.number());
        if let Some(fault) = self.active.get(&key).and_then(|id| self.faults.get_mut(id)) {
            self.changed |= fault.sources.insert(source.to_owned());
            fault.delivery.reported_since_start = true;
            return;
        }
        match self.create((source, subject), active_fault, at, context) {
            Ok(fault) => {
                let fault = self.begin(key, fault);
                self.escalation.record_occurrence(subject, &fault.code, context.now);
                changes.push(Change::Began(fault));
            }
            Err(untracked) => self.reject(untracked),
        }
    }

    fn notice(
        &mut self,
        (source, subject): (&str, Subject),
        active_fault: &ActiveFault,
        at: u64,
        context: Context<'_>,
        changes: &mut Vec<Change>,
    ) {
        let mut fault = match self.create((source, subject), active_fault, at, context) {
            Ok(fault) => fault,
            Err(untracked) => return self.reject(untracked),
        };
        self.escalate_notice(&mut fault, context, changes);
        (fault.kind, fault.phase) = (FaultKind::Notice, Phase::Ready);
        fault.since = self.unique_since(&fault);
        fault.id = fault_id(&self.node, subject, &fault.code, fault.since);
        if context.notices {
            self.changed = true;
            self.faults.insert(fault.id.clone(), fault.clone());
        }
        changes.push(Change::Happened(fault));
    }

    fn reject(&mut self, untracked: Option<Untracked>) {
        self.dropped += u64::from(untracked.is_none());
        self.untracked = untracked.or(self.untracked);
    }

    /// A fault without id. `Err(None)` if ClusterD can't know the device.
    fn create(
        &self,
        (source, subject): (&str, Subject),
        active_fault: &ActiveFault,
        at: u64,
        context: Context<'_>,
    ) -> Result<Fault, Option<Untracked>> {
        let devices = match subject {
            Subject::Npu(id) => vec![id],
            Subject::Node if context.devices.is_empty() => self.reported_npus(),
            Subject::Node => context.devices.to_vec(),
        };
        if devices.iter().any(|&id| id > LAST_DEVICE) {
            return Err(None);
        }
        if devices.is_empty() {
            return Err(Some(Untracked::DevicesUnknown));
        }
        if self.faults.len() >= MAX_FAULTS {
            return Err(Some(Untracked::Full));
        }
        Ok(Fault {
            id: String::new(),
            subject,
            code: active_fault.code.clone(),
            classification: (context.classify)(&active_fault.code, active_fault.severity),
            severity: active_fault.severity,
            name: active_fault.name.clone(),
            devices,
            since: at,
            kind: FaultKind::Condition,
            sources: BTreeSet::from([source.to_owned()]),
            phase: Phase::Settling,
            delivery: Delivery { reported_since_start: true, ..Delivery::default() },
        })
    }

    /// The NPUs of which sources report something.
    fn reported_npus(&self) -> Vec<u32> {
        let npu = |(_, subject): &(String, Subject)| match subject {
            Subject::Npu(id) => Some(*id),
            Subject::Node => None,
        };
        self.reports.keys().filter_map(npu).collect::<BTreeSet<u32>>().into_iter().collect()
    }
}
