//! What ClusterD shows, compared with what it should show.
//!
//! An answer of 0 proves nothing: ClusterD gives it for what it drops too. What it has is in the ConfigMap
//! `statistic-fault-info`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ATTEMPTS, RESYNC_GRACE, Reconciler};
use crate::fault::{Delivery, Fault, Handling, Phase};
use crate::fault_id::rehearsal_expiry;
use crate::tracker::FaultTracker;

/// Interval of observations while something is unconfirmed.
const SOON: Duration = Duration::from_millis(1500);
/// Interval of observations otherwise.
const LATE: Duration = Duration::from_mins(5);
/// ClusterD holds an end back until the occurrence is five seconds old, in its memory only.
const CERTAIN: Duration = Duration::from_secs(6);

/// What ClusterD has of this node's faults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// By id, with what ClusterD does about it, if that is known.
    pub faults: BTreeMap<String, Option<Handling>>,
    /// Whether these are all. They aren't if the ConfigMap may not be read.
    pub is_complete: bool,
}

/// What an observation says of a fault.
enum Comparison {
    Unchanged,
    Gone,
    /// It is expected to change soon.
    Soon,
}

impl Reconciler {
    /// When ClusterD's faults have to be read next, if at all.
    pub fn next_observation(&self, tracker: &FaultTracker) -> Option<Duration> {
        match self.observed_at {
            // What did the process before leave there?
            None => Some(Duration::ZERO),
            Some(at) if self.is_unconfirmed => Some(at + SOON),
            Some(at) if !self.unknown.is_empty() || tracker.faults().any(Fault::may_be_known) => {
                Some(at + LATE)
            }
            Some(_) => None,
        }
    }

    /// A fault that ClusterD accepted several times and doesn't show.
    pub fn unconfirmed<'a>(&self, tracker: &'a FaultTracker) -> Option<&'a Fault> {
        let is_unconfirmed =
            |fault: &&Fault| fault.phase == Phase::Sent && fault.delivery.attempts > ATTEMPTS;
        tracker.faults().find(is_unconfirmed)
    }

    /// Compares what ClusterD shows with what it should show.
    pub fn observe(&mut self, tracker: &mut FaultTracker, observed: &Observed, now: Duration) {
        self.observed_at = Some(now);
        self.is_confirmable = observed.is_complete;
        self.is_unconfirmed = false;
        self.unknown.retain(|id, _| observed.faults.contains_key(id));
        for (id, handling) in &observed.faults {
            if tracker.get(id).is_some() || tracker.adopt(id, *handling) {
                self.unknown.remove(id);
            } else {
                // A rehearsal withdraws its fault itself, unless it was killed.
                let retry_at = rehearsal_expiry(id, now).unwrap_or_default();
                let unknown = || Delivery { retry_at, ..Delivery::default() };
                self.unknown.entry(id.clone()).or_insert_with(unknown);
            }
        }
        let parts = tracker.parts();
        let mut gone = Vec::new();
        for fault in parts.faults.values_mut() {
            let before = fault.phase.clone();
            let shown = observed.faults.contains_key(&fault.id);
            match self.compare(fault, shown, now) {
                Comparison::Unchanged => {}
                Comparison::Gone => gone.push(fault.id.clone()),
                Comparison::Soon => self.is_unconfirmed = true,
            }
            *parts.changed |= before != fault.phase;
        }
        *parts.changed |= !gone.is_empty();
        for id in gone {
            parts.faults.remove(&id);
        }
    }

    fn compare(&self, fault: &mut Fault, shown: bool, now: Duration) -> Comparison {
        let Delivery { answered_at, retry_at, attempts, refused, reported_since_start, .. } = fault.delivery;
        let soon = || if attempts <= ATTEMPTS { Comparison::Soon } else { Comparison::Unchanged };
        match fault.phase {
            Phase::Sent if shown || answered_at.is_some() && !self.is_confirmable => {
                fault.phase = Phase::Confirmed;
                fault.delivery.attempts = 0;
                Comparison::Unchanged
            }
            Phase::Sent if answered_at.is_some() => {
                if now < retry_at {
                    return soon();
                }
                fault.delivery.answered_at = None;
                Comparison::Unchanged
            }
            Phase::Confirmed if !shown && self.is_confirmable => {
                fault.phase = Phase::Sent;
                // A fault of an earlier process may have ended since.
                let grace = if reported_since_start { now } else { self.started + RESYNC_GRACE };
                fault.delivery.retry_at = grace.max(now);
                fault.delivery.answered_at = None;
                fault.delivery.attempts = attempts.max(1);
                Comparison::Unchanged
            }
            Phase::Withdrawn if shown => {
                fault.delivery.is_gone = false;
                if now < retry_at {
                    return soon();
                }
                fault.delivery.answered_at = None;
                Comparison::Unchanged
            }
            Phase::Withdrawn if self.is_confirmable && !fault.delivery.is_gone => {
                fault.delivery.is_gone = answered_at.is_some_and(|at| now >= at + CERTAIN);
                if fault.delivery.is_gone { Comparison::Unchanged } else { soon() }
            }
            Phase::Ending => match answered_at {
                None => Comparison::Unchanged,
                Some(_) if !self.is_confirmable && !refused => Comparison::Gone,
                Some(_) if !self.is_confirmable => Comparison::Unchanged,
                Some(_) if shown => soon(),
                Some(at) if now >= at + CERTAIN => Comparison::Gone,
                Some(_) => Comparison::Soon,
            },
            _ => Comparison::Unchanged,
        }
    }
}
