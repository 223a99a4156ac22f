//! The escalation rules, as a source of faults.

use super::{Change, Context, FaultTracker, Key};
use crate::fault::{Classification, Delivery, Fault, FaultKind, Phase, RULES};
use crate::rules::{EscalatedLevel, EscalationReason, EscalationTracker, Rules};
use crate::source_update::Subject;

impl FaultTracker {
    /// Replaces the rules. `complete` says whether the rules of the cluster are among them.
    pub fn set_rules(&mut self, rules: Rules, complete: bool, now: u64) {
        match self.saved_tracks.take() {
            // Tracks without a rule are removed, so this waits until all rules are known.
            Some(tracks) if complete => self.escalation = EscalationTracker::with_tracks(rules, tracks),
            waiting => {
                self.saved_tracks = waiting;
                self.escalation.set_rules(rules);
            }
        }
        for fault in self.active.values().filter_map(|id| self.faults.get(id)) {
            let raised = (fault.kind == FaultKind::Raised).then_some(fault.classification.level);
            let is_active = self.active.contains_key(&(false, fault.subject, fault.code.number()));
            self.escalation.restore(fault.subject, &fault.code, is_active, raised, now);
        }
    }

    /// When a rule changes something without a new report.
    pub fn next_escalation(&self) -> Option<u64> {
        self.escalation.next_deadline()
    }

    /// A notice can get a higher level by a rule, and can make a rule take its device out of service.
    pub(super) fn escalate_notice(
        &mut self,
        fault: &mut Fault,
        context: Context<'_>,
        changes: &mut Vec<Change>,
    ) {
        let (subject, code) = (fault.subject, fault.code.clone());
        let notice = self.escalation.record_notice(subject, &code, context.now);
        let lasting = self.escalation.escalated_level(subject, &code, context.now);
        if let Some(raise) = lasting {
            self.raise(fault, raise, changes);
        }
        if let Some(raise) = notice.filter(|raise| raise.level > fault.classification.level) {
            fault.classification = classification(raise);
        }
    }

    /// Raises faults by the rules, and ends what they no longer raise.
    pub(super) fn escalate(&mut self, context: Context<'_>, changes: &mut Vec<Change>) {
        let now = context.now;
        for change in changes.iter() {
            if let Change::Ended(fault) = change
                && fault.kind == FaultKind::Condition
                && !self.active.contains_key(&super::key(fault))
            {
                self.escalation.record_recovery(fault.subject, &fault.code, now);
            }
        }
        self.escalation.advance(now);
        for (subject, code) in self.escalation.followed() {
            let Some(raise) = self.escalation.escalated_level(subject, &code, now) else { continue };
            let fault = self.active.get(&(false, subject, code.number())).and_then(|id| self.faults.get(id));
            if let Some(fault) = fault.filter(|fault| raise.level > fault.classification.level).cloned() {
                self.raise(&fault, raise, changes);
            }
        }
        // Before all rules are known, one that is missing ends nothing.
        if self.saved_tracks.is_none() {
            for key in
                self.active.range((true, Subject::Node, 0)..).map(|(key, _)| *key).collect::<Vec<Key>>()
            {
                let Some(fault) = self.active.get(&key).and_then(|id| self.faults.get(id)) else { continue };
                if self.escalation.escalated_level(fault.subject, &fault.code, now).is_none() {
                    self.end(key, changes);
                }
            }
        }
    }

    fn raise(&mut self, of: &Fault, raise: EscalatedLevel, changes: &mut Vec<Change>) {
        let key = (true, of.subject, of.code.number());
        if self.active.contains_key(&key) || self.faults.len() >= super::MAX_FAULTS {
            return;
        }
        let fault = Fault {
            classification: classification(raise),
            kind: FaultKind::Raised,
            sources: [RULES.to_owned()].into(),
            phase: Phase::Settling,
            delivery: Delivery { reported_since_start: true, ..Delivery::default() },
            ..of.clone()
        };
        changes.push(Change::Began(self.begin(key, fault)));
    }
}

fn classification(raise: EscalatedLevel) -> Classification {
    let reason = match raise.reason {
        EscalationReason::Repeated { times, window } => format!("raised: {times} times within {window:?}"),
        EscalationReason::Lasted { after } => format!("raised: active for more than {after:?}"),
    };
    Classification { level: raise.level, reason }
}
