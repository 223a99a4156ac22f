//! What others see of the pipeline: logs, Events, metrics, the condition, `/status`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use swansong_fault_model::device_plugin::PluginState;
use swansong_fault_model::{
    Assertion, BlockReason, Change, Fault, FaultTracker, Handling, Phase, SourceUpdate, Subject,
};
use tracing::{info, warn};

use super::{Pipeline, device_info_problem};
use crate::clock::as_millis;
use crate::condition::{self, Situation};
use crate::pod::NpuPod;
use crate::status::Status;

/// Between two updates of `/status`, which copy all faults.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// What was announced, so that it isn't announced again.
pub(super) struct Announced {
    /// Faults that the device plugin reports.
    by_device_plugin: BTreeSet<String>,
    /// Faults that are blocked by an objection, since when and by which.
    nothing_saved: BTreeMap<String, (Duration, String)>,
    /// What a source can't inspect, and why.
    unavailable: BTreeMap<(&'static str, Subject), String>,
    /// Why the state was set aside at the start.
    set_aside: Option<String>,
    status_not_before: Duration,
}

impl Announced {
    pub(super) const fn new(set_aside: Option<String>) -> Self {
        Self {
            by_device_plugin: BTreeSet::new(),
            nothing_saved: BTreeMap::new(),
            unavailable: BTreeMap::new(),
            set_aside,
            status_not_before: Duration::ZERO,
        }
    }

    pub(super) fn note_availability(&mut self, source: &'static str, update: &SourceUpdate) {
        match update {
            SourceUpdate::Unavailable { subject, reason } => {
                self.unavailable.insert((source, *subject), reason.clone());
            }
            SourceUpdate::Snapshot { subject, .. } => drop(self.unavailable.remove(&(source, *subject))),
            SourceUpdate::Event(_) => {}
        }
    }
}

impl Pipeline {
    /// Logs changes, counts them and makes Events of them.
    pub(super) fn announce(&self, changes: &[Change]) {
        let (events, metrics) = (&self.parts.events, &self.parts.metrics);
        let pods = self.pods();
        for change in changes {
            let (assertion, fault) = match change {
                Change::Began(fault) => (Assertion::Occur, fault),
                Change::Ended(fault) => (Assertion::Recover, fault),
                Change::Happened(fault) => (Assertion::Once, fault),
            };
            metrics.count_reported(assertion);
            let (id, reason) = (&fault.id, &fault.classification.reason);
            info!(id, %assertion, fault = fault.describe(), reason, "a source reports a fault");
            if fault.handling() == Handling::None && !self.parts.settings.notices {
                continue;
            }
            match change {
                Change::Began(fault) => events.began(fault, &pods),
                Change::Ended(fault) => events.ended(fault),
                Change::Happened(fault) => events.happened(fault),
            }
        }
        metrics.set_dropped(self.tracker.dropped());
    }

    /// Shows the faults in metrics, condition and `/status`. The answer is when `/status` is due.
    pub(super) fn publish(&mut self, now: Duration) -> Option<Duration> {
        self.announce_blocked(now);
        self.parts.metrics.set_open(&self.tracker);
        let saved = self.saver.saved().borrow().clone();
        self.parts.metrics.set_persisted(saved.problem.is_none());
        let condition = condition::decide(&self.situation(saved.problem.as_deref(), now));
        self.parts.outputs.condition.send_if_modified(|before| {
            let is_new = before.as_ref() != Some(&condition);
            if is_new {
                *before = Some(condition.clone());
            }
            is_new
        });
        if now < self.announced.status_not_before {
            return Some(self.announced.status_not_before);
        }
        self.announced.status_not_before = now + STATUS_INTERVAL;
        let Self { tracker, outcomes, reconciler, parts, .. } = self;
        let status = Status::new(Some(condition), saved.problem, tracker, outcomes, reconciler, now);
        parts.outputs.status.send_replace(Some(Arc::new(status)));
        None
    }

    /// Announces faults that are blocked, once per fault and cause.
    fn announce_blocked(&mut self, now: Duration) {
        let pods = self.pods();
        let Self { tracker, checked, announced, parts, .. } = self;
        let blocked = |tracker: &FaultTracker, reason: &BlockReason| -> Vec<Fault> {
            let is_blocked = |fault: &&Fault| matches!(&fault.phase, Phase::Blocked(why) if why == reason);
            tracker.faults().filter(is_blocked).cloned().collect()
        };
        let mut by_device_plugin = BTreeSet::new();
        for fault in blocked(tracker, &BlockReason::ReportedByDevicePlugin) {
            if !announced.by_device_plugin.contains(&fault.id) {
                parts.events.reported_by_device_plugin(&fault);
            }
            by_device_plugin.insert(fault.id);
        }
        announced.by_device_plugin = by_device_plugin;
        let mut nothing_saved = BTreeMap::new();
        for fault in blocked(tracker, &BlockReason::NothingSaved) {
            let Some(checked) = checked.get(&fault.subject) else { continue };
            let Some(objection) = checked.checks.objections.first().map(ToString::to_string) else {
                continue;
            };
            let before = announced.nothing_saved.remove(&fault.id);
            if before.as_ref().is_none_or(|(_, before)| *before != objection) {
                warn!(id = fault.id, objection, "a fault isn't sent, since no checkpoint would be saved");
                parts.events.blocked(&fault, &checked.checks.objections, &pods);
            }
            nothing_saved.insert(fault.id, (before.map_or(now, |(since, _)| since), objection));
        }
        // While the jobs are checked again, the last objection counts.
        for fault in blocked(tracker, &BlockReason::Preflight) {
            nothing_saved.extend(announced.nothing_saved.remove_entry(&fault.id));
        }
        announced.nothing_saved = nothing_saved;
    }

    fn situation<'a>(&'a self, state_problem: Option<&'a str>, now: Duration) -> Situation<'a> {
        let is_waiting = |fault: &&Fault| match fault.phase {
            Phase::Ready | Phase::Ending => true,
            Phase::Sent | Phase::Withdrawn => fault.delivery.answered_at.is_none(),
            Phase::Settling | Phase::Blocked(_) | Phase::Confirmed => false,
        };
        Situation {
            now,
            trouble: self.reconciler.trouble(),
            objection: self.announced.nothing_saved.values().min().cloned(),
            untracked: self.tracker.untracked(),
            unconfirmed: self.reconciler.unconfirmed(&self.tracker).map(|fault| fault.id.as_str()),
            refused: self.refused(),
            unpublished: self.unpublished(now),
            state_problem: state_problem.or(self.announced.set_aside.as_deref()),
            unavailable: self.unavailable(),
            waiting: self.tracker.faults().filter(is_waiting).count(),
        }
    }

    /// A fault that ClusterD refused.
    fn refused(&self) -> Option<(&str, &str)> {
        self.tracker.faults().find_map(|fault| match &fault.phase {
            Phase::Blocked(BlockReason::Refused(why)) => Some((fault.id.as_str(), why.as_str())),
            Phase::Ending if fault.delivery.refused => {
                Some((fault.id.as_str(), "its end; ClusterD's log has the reason"))
            }
            _ => None,
        })
    }

    fn unpublished(&self, now: Duration) -> Option<(&'static str, String)> {
        let state = self.parts.inputs.device_plugin.borrow().state(as_millis(now));
        // Before the first observation nothing is known to be wrong.
        let why = device_info_problem(&state).filter(|_| state != PluginState::Unknown)?;
        Some((state.reason(), why))
    }

    fn unavailable(&self) -> Option<String> {
        let mut unavailable = self.announced.unavailable.iter();
        let unavailable = unavailable
            .next()
            .map(|((source, subject), why)| format!("{source} can't inspect {subject}: {why}"));
        unavailable.or_else(|| {
            let fault = self.tracker.active().find(|fault| !self.tracker.is_watched(fault))?;
            let sources: Vec<&str> = fault.sources.iter().map(String::as_str).collect();
            let (id, sources) = (&fault.id, sources.join(", "));
            Some(format!("{id} was reported by {sources}, which is disabled: its end can't be noticed"))
        })
    }

    pub(super) fn pods(&self) -> Arc<Vec<NpuPod>> {
        self.parts.inputs.pods.borrow().clone().unwrap_or_default()
    }
}
