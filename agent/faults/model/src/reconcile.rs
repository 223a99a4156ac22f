//! From the faults of this node and what ClusterD shows to what is sent, without clock, network or disk.
//!
//! Every fault has one phase, and one batch is in flight at a time, so that what is sent of a fault can't be reordered.

mod gate;
mod observe;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::fault::{BlockReason, Delivery, Fault, FaultKind, Handling, Loss, Phase};
use crate::send_backoff::{BatchError, SendBackoff, Trouble};
use crate::source_update::{Assertion, Subject};
use crate::tracker::{FaultTracker, Key, key};

pub use self::gate::Preflight;
pub use self::observe::Observed;

/// The most faults that ClusterD accepts in one message (`checker.go`).
pub const MAX_BATCH: usize = 100;

/// How long a fault of an earlier process waits for a source to report it again.
pub const RESYNC_GRACE: Duration = Duration::from_mins(1);

/// ClusterD shows a fault about a second after it accepted it, and an end up to five seconds after the occurrence.
const CONFIRM: Duration = Duration::from_secs(8);

/// ClusterD is expected to show a fault or an end after so many attempts.
const ATTEMPTS: u32 = 3;

/// After so many unconfirmed ends the next fault of the same code isn't delayed any longer.
const GIVE_UP: u32 = 7;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a fault that ends ranks has to be reported. ClusterD doesn't undo a kill, and the device plugin
    /// publishes a fault up to five seconds after it occurred.
    pub settle: Duration,
    /// How long a fault has to be reported that ClusterD handles only where a job asks for it.
    pub settle_sub_health: Duration,
    /// Whether faults about which ClusterD does nothing are sent too.
    pub notices: bool,
    /// Whether a fault is withdrawn when the jobs that it hit have dumped: otherwise it would end a
    /// rescheduled job, and so would a restart of ClusterD.
    pub withdraw_after_dump: bool,
    /// Whether jobs may ask, by `swansong.dev/fast-dump`, that the rank on a lost device is ended at once.
    pub fast_dump: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(5),
            settle_sub_health: Duration::from_secs(30),
            notices: false,
            withdraw_after_dump: true,
            fast_dump: true,
        }
    }
}

/// What else a decision depends on.
pub struct Inputs<'a> {
    /// By a clock that never goes back within a process.
    pub now: Duration,
    /// Whether ClusterD learns of a fault from the device plugin's ConfigMap.
    pub is_reported_by_device_plugin: &'a dyn Fn(&Fault) -> bool,
    /// The last preflight of the jobs on a subject.
    pub preflight: &'a dyn Fn(Subject) -> Option<Preflight>,
    /// Whether the cluster's classification is known: before, a level may be higher than it is.
    pub is_classified: bool,
}

/// A fault, or its end, that is part of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundFault {
    pub fault: Fault,
    /// Whether it occurs or ends.
    pub assertion: Assertion,
    /// Why it is sent.
    pub cause: Cause,
}

/// Why something is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    New,
    /// ClusterD doesn't show what it should.
    Again,
    /// Its jobs have ended, though it is still reported.
    Withdrawal,
    /// ClusterD shows a fault that isn't known here.
    Unknown,
}

/// What has to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The batch to send; [`Reconciler::complete`] takes its result.
    pub batch: Vec<OutboundFault>,
    /// The subjects whose jobs have to be checked.
    pub preflights: BTreeSet<Subject>,
    /// The lost devices on which jobs may have their rank ended, by fault. Each is named once.
    pub lost: BTreeMap<String, Subject>,
    /// When something is due without a new report.
    pub wake: Option<Duration>,
}

/// The result of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// ClusterD accepted these.
    pub accepted: Vec<OutboundFault>,
    /// ClusterD refused these, and won't accept them.
    pub refused: Vec<(OutboundFault, String)>,
}

/// Brings ClusterD in line with the faults of this node.
#[derive(Debug)]
pub struct Reconciler {
    settings: Settings,
    started: Duration,
    backoff: SendBackoff,
    in_flight: bool,
    /// Faults of a batch that was refused as a whole: they are sent one by one.
    suspects: BTreeSet<String>,
    /// What ClusterD shows and isn't known here.
    unknown: BTreeMap<String, Delivery>,
    /// When ClusterD's faults were last read.
    observed_at: Option<Duration>,
    /// Whether all of ClusterD's faults can be read.
    is_confirmable: bool,
    /// Whether something is expected to appear or disappear there soon.
    is_unconfirmed: bool,
}

impl Plan {
    /// Whether `at` has passed; otherwise the plan wakes then.
    fn is_time(&mut self, at: Duration, now: Duration) -> bool {
        if now < at {
            self.wake_at(at);
        }
        now >= at
    }

    fn wake_at(&mut self, at: Duration) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

impl Reconciler {
    /// Begins at `now`.
    pub const fn new(settings: Settings, now: Duration) -> Self {
        Self {
            settings,
            started: now,
            backoff: SendBackoff::new(),
            in_flight: false,
            suspects: BTreeSet::new(),
            unknown: BTreeMap::new(),
            observed_at: None,
            is_confirmable: true,
            is_unconfirmed: true,
        }
    }

    /// What keeps batches from ClusterD.
    pub const fn trouble(&self) -> Option<&Trouble> {
        self.backoff.trouble()
    }

    /// Withdraws the fault `id`, whose jobs have ended.
    pub fn withdraw(&self, tracker: &mut FaultTracker, id: &str) {
        let parts = tracker.parts();
        if let Some(fault) = parts.faults.get_mut(id)
            && self.settings.withdraw_after_dump
            && matches!(fault.phase, Phase::Sent | Phase::Confirmed)
        {
            fault.phase = Phase::Withdrawn;
            fault.delivery = Delivery { reported_since_start: true, ..Delivery::default() };
            *parts.changed = true;
        }
    }

    /// Decides what to do now, and moves every fault to its phase.
    pub fn reconcile(&mut self, tracker: &mut FaultTracker, inputs: &Inputs<'_>) -> Plan {
        let mut plan = Plan::default();
        let mut due = Vec::new();
        let parts = tracker.parts();
        let ending: BTreeSet<Key> =
            parts.faults.values().filter(|fault| fault.phase == Phase::Ending).map(key).collect();
        for fault in parts.faults.values_mut() {
            let is_due = match fault.phase {
                Phase::Settling | Phase::Blocked(_) | Phase::Ready => {
                    let phase = self.gate(fault, parts.sources, &ending, inputs, &mut plan);
                    fault.phase = phase;
                    fault.phase == Phase::Ready
                }
                Phase::Confirmed => false,
                Phase::Sent | Phase::Withdrawn if fault.delivery.answered_at.is_some() => false,
                Phase::Sent => {
                    plan.is_time(fault.delivery.retry_at, inputs.now)
                        && self.gate(fault, parts.sources, &ending, inputs, &mut plan) == Phase::Ready
                }
                Phase::Withdrawn | Phase::Ending => plan.is_time(fault.delivery.retry_at, inputs.now),
            };
            if is_due {
                due.push(OutboundFault::of(fault));
            }
            if self.is_lost_for_certain(fault, inputs, &mut plan) {
                fault.delivery.loss = Loss::Handled;
                plan.lost.insert(fault.id.clone(), fault.subject);
            }
        }
        for (id, delivery) in &self.unknown {
            let not_before = delivery.retry_at.max(self.started + RESYNC_GRACE);
            if plan.is_time(not_before, inputs.now) {
                let fault = Fault { delivery: delivery.clone(), ..Fault::from_id(id) };
                due.push(OutboundFault { fault, assertion: Assertion::Recover, cause: Cause::Unknown });
            }
        }
        if !due.is_empty() {
            plan.batch = self.batch(due, inputs.now, &mut plan);
        }
        for outbound in &plan.batch {
            if let Some(fault) = parts.faults.get_mut(&outbound.fault.id)
                && fault.phase == Phase::Ready
            {
                fault.phase = Phase::Sent;
                *parts.changed = true;
            }
        }
        self.in_flight |= !plan.batch.is_empty();
        plan
    }

    /// Takes the result of the batch in flight. `jitter` is between 0 and 1.
    pub fn complete(
        &mut self,
        tracker: &mut FaultTracker,
        batch: Vec<OutboundFault>,
        result: Result<(), BatchError>,
        now: Duration,
        jitter: f64,
    ) -> Completed {
        self.in_flight = false;
        match result {
            Ok(()) => {
                self.backoff.answered(now);
                for outbound in &batch {
                    self.suspects.remove(&outbound.fault.id);
                    self.answered(tracker, outbound, None, now);
                }
                Completed { accepted: batch, refused: Vec::new() }
            }
            // Which one of several is invalid is found by sending them one by one.
            Err(BatchError::Invalid(_)) if batch.len() > 1 => {
                self.backoff.answered(now);
                self.suspects.extend(batch.into_iter().map(|outbound| outbound.fault.id));
                Completed::default()
            }
            Err(BatchError::Invalid(why)) => {
                self.backoff.answered(now);
                let refused = batch.into_iter().map(|outbound| {
                    self.refuse(tracker, &outbound, &why, now);
                    (outbound, why.clone())
                });
                Completed { accepted: Vec::new(), refused: refused.collect() }
            }
            Err(error) => {
                self.backoff.failed(&error, now, jitter);
                Completed::default()
            }
        }
    }

    /// ClusterD refused a fault, or would, so it isn't sent again.
    pub fn refuse(&mut self, tracker: &mut FaultTracker, outbound: &OutboundFault, why: &str, now: Duration) {
        self.suspects.remove(&outbound.fault.id);
        self.answered(tracker, outbound, Some(why), now);
    }

    fn answered(
        &mut self,
        tracker: &mut FaultTracker,
        outbound: &OutboundFault,
        refusal: Option<&str>,
        now: Duration,
    ) {
        let id = &outbound.fault.id;
        self.is_unconfirmed = true;
        if let Some(delivery) = self.unknown.get_mut(id) {
            delivery.answer(now, refusal.is_some());
        }
        let parts = tracker.parts();
        let Some(fault) = parts.faults.get_mut(id) else { return };
        let is_end = outbound.assertion == Assertion::Recover;
        let is_gone = match (&fault.phase, refusal) {
            _ if fault.kind == FaultKind::Notice => true,
            // It ended while the batch was in flight; its end is sent next.
            (Phase::Ending, _) if !is_end => return,
            (Phase::Sent, Some(why)) => {
                fault.phase = Phase::Blocked(BlockReason::Refused(why.to_owned()));
                *parts.changed = true;
                false
            }
            (Phase::Ending, None) if !self.is_confirmable || fault.delivery.attempts + 1 >= GIVE_UP => true,
            (Phase::Sent | Phase::Withdrawn | Phase::Ending, _) => {
                fault.delivery.answer(now, refusal.is_some());
                false
            }
            _ => false,
        };
        if is_gone {
            parts.faults.remove(id);
            *parts.changed = true;
        }
    }

    /// What fits into the next batch, unless it isn't time for one.
    fn batch(&self, mut due: Vec<OutboundFault>, now: Duration, plan: &mut Plan) -> Vec<OutboundFault> {
        if self.in_flight || now < self.backoff.next() {
            if !self.in_flight {
                plan.wake_at(self.backoff.next());
            }
            return Vec::new();
        }
        if let Some(place) = due.iter().position(|outbound| self.suspects.contains(&outbound.fault.id)) {
            return vec![due.swap_remove(place)];
        }
        due.sort_by_key(|outbound| (outbound.fault.handling() != Handling::EndRanks, outbound.fault.since));
        due.truncate(MAX_BATCH);
        due
    }
}

impl OutboundFault {
    fn of(fault: &Fault) -> Self {
        let (assertion, cause) = match fault.phase {
            Phase::Ending => (Assertion::Recover, Cause::New),
            Phase::Withdrawn => (Assertion::Recover, Cause::Withdrawal),
            _ if fault.kind == FaultKind::Notice => (Assertion::Once, Cause::New),
            Phase::Sent if fault.delivery.attempts > 0 => (Assertion::Occur, Cause::Again),
            _ => (Assertion::Occur, Cause::New),
        };
        let cause = if cause == Cause::New && fault.delivery.attempts > 0 { Cause::Again } else { cause };
        Self { fault: fault.clone(), assertion, cause }
    }
}

impl Delivery {
    /// ClusterD answered: the next attempt comes later each time, after four minutes at most.
    fn answer(&mut self, now: Duration, refused: bool) {
        self.answered_at = Some(now);
        self.refused = refused;
        self.retry_at = now + CONFIRM.saturating_mul(1 << self.attempts.min(5));
        self.attempts = self.attempts.saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
