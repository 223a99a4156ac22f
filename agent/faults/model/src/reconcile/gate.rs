//! What has to hold before a fault is sent.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Inputs, Plan, RESYNC_GRACE, Reconciler};
use crate::code::Code;
use crate::driver_fault::CARD_DROP;
use crate::fault::{BlockReason, Fault, FaultKind, Handling, Loss, Phase};
use crate::tracker::{Key, is_watched, key};

/// How long a preflight without objections is valid.
const PREFLIGHT_VALID: Duration = Duration::from_secs(3);
/// The shortest and the longest time between two preflights.
const PREFLIGHT_INTERVAL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// How long before a fault is due its preflight is made.
const PREFLIGHT_LEAD: Duration = Duration::from_secs(1);
/// How long a fault that ends ranks waits until ClusterD's faults are observed for the first time.
const FIRST_OBSERVATION: Duration = Duration::from_secs(10);

/// Whether the jobs on a subject would save a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preflight {
    /// When they were checked.
    pub at: Duration,
    /// Since when something is missing.
    pub objects_since: Option<Duration>,
}

impl Preflight {
    /// The time between two checks: the longer something is missing, the longer.
    fn interval(&self) -> Duration {
        let (shortest, longest) = PREFLIGHT_INTERVAL;
        self.objects_since
            .map_or(shortest, |since| (self.at.saturating_sub(since) / 4).clamp(shortest, longest))
    }

    /// Until when it counts. An objection counts until the next check.
    fn valid_until(&self) -> Duration {
        let interval = if self.objects_since.is_some() { self.interval() } else { Duration::ZERO };
        self.at + interval + PREFLIGHT_VALID
    }
}

impl Reconciler {
    /// The phase of a fault that isn't known to ClusterD: [`Phase::Ready`] if it may be sent.
    pub(super) fn gate(
        &self,
        fault: &mut Fault,
        sources: Option<&[&'static str]>,
        ending: &BTreeSet<Key>,
        inputs: &Inputs<'_>,
        plan: &mut Plan,
    ) -> Phase {
        let now = inputs.now;
        if let Phase::Blocked(BlockReason::Refused(_)) = fault.phase {
            return fault.phase.clone();
        }
        if fault.kind == FaultKind::Notice {
            return Phase::Ready;
        }
        if fault.handling() == Handling::None && !self.settings.notices {
            return Phase::Blocked(BlockReason::NotHandled);
        }
        if !is_watched(sources, fault) {
            return Phase::Blocked(BlockReason::SourceDisabled);
        }
        if (inputs.is_reported_by_device_plugin)(fault) {
            // When the device plugin reports it no more, it may have ended, unnoticed by our source.
            fault.delivery.settling_since = None;
            return Phase::Blocked(BlockReason::ReportedByDevicePlugin);
        }
        let settled = self.settled_at(fault, now);
        let lead = settled.saturating_sub(PREFLIGHT_LEAD);
        let preflight = (inputs.preflight)(fault.subject);
        if fault.ends_ranks()
            && now >= lead
            && preflight.is_none_or(|preflight| now >= preflight.at + preflight.interval())
        {
            plan.preflights.insert(fault.subject);
        }
        if now < settled {
            plan.wake_at(if fault.ends_ranks() && now < lead { lead } else { settled });
            return Phase::Settling;
        }
        if fault.phase != Phase::Sent && ending.contains(&key(fault)) {
            return Phase::Blocked(BlockReason::PreviousEnding);
        }
        if fault.ends_ranks() { self.preflighted(preflight, inputs, plan) } else { Phase::Ready }
    }

    /// When the fault has been reported for long enough.
    fn settled_at(&self, fault: &mut Fault, now: Duration) -> Duration {
        let since = *fault.delivery.settling_since.get_or_insert(now);
        let settled = since + self.settings.settle(fault.handling());
        if fault.delivery.reported_since_start { settled } else { settled.max(self.started + RESYNC_GRACE) }
    }

    /// Whether a device is certainly lost, ClusterD knows it and responds, and the jobs on it can dump.
    pub(super) fn is_lost_for_certain(
        &self,
        fault: &mut Fault,
        inputs: &Inputs<'_>,
        plan: &mut Plan,
    ) -> bool {
        let is_candidate = self.settings.fast_dump
            && fault.kind == FaultKind::Condition
            && fault.code == Code::from(CARD_DROP)
            && fault.ends_ranks();
        if !is_candidate {
            return false;
        }
        let since = match fault.delivery.loss {
            Loss::Handled => return false,
            Loss::Since(since) => since,
            Loss::None => inputs.now,
        };
        fault.delivery.loss = Loss::Since(since);
        let settled = since + self.settings.settle;
        match fault.phase {
            Phase::Sent => fault.delivery.answered_at.is_some(),
            // ClusterD may show it before its answer arrives, or without one.
            Phase::Confirmed => true,
            // ClusterD has it from the device plugin: it was neither settled nor checked here.
            Phase::Blocked(BlockReason::ReportedByDevicePlugin) if self.trouble().is_none() => {
                if !plan.is_time(settled, inputs.now) {
                    return false;
                }
                let preflight = (inputs.preflight)(fault.subject);
                if preflight.is_none_or(|preflight| inputs.now >= preflight.at + preflight.interval()) {
                    plan.preflights.insert(fault.subject);
                }
                self.preflighted(preflight, inputs, plan) == Phase::Ready
            }
            _ => false,
        }
    }

    fn preflighted(&self, preflight: Option<Preflight>, inputs: &Inputs<'_>, plan: &mut Plan) -> Phase {
        let now = inputs.now;
        let deadline = self.started + FIRST_OBSERVATION;
        if self.observed_at.is_none() && now < deadline {
            // ClusterD may have the fault already, from a process whose state was lost.
            plan.wake_at(deadline);
            return Phase::Blocked(BlockReason::Preflight);
        }
        match preflight.filter(|preflight| inputs.is_classified && now <= preflight.valid_until()) {
            None => Phase::Blocked(BlockReason::Preflight),
            Some(Preflight { objects_since: None, .. }) => Phase::Ready,
            Some(preflight) => {
                let next = preflight.at + preflight.interval();
                // After that the next check is under way.
                if next > now {
                    plan.wake_at(next);
                }
                Phase::Blocked(BlockReason::NothingSaved)
            }
        }
    }
}

impl super::Settings {
    const fn settle(&self, handling: Handling) -> Duration {
        match handling {
            Handling::EndRanks => self.settle,
            Handling::SubHealth => self.settle_sub_health,
            Handling::None => Duration::ZERO,
        }
    }
}
