//! The state between two reconciliations.

use std::time::Duration;

use super::details::{ConditionDetails, Problem};
use super::heartbeat::Heartbeat;
use super::hysteresis::Hysteresis;
use super::write_budget::WriteBudget;
use super::{Actions, CheckState, Condition, NodeEvent, NodeUpdate, Now, ObservedNode, Settings, WriteCause};
use crate::finding::{CheckName, Ready, Reason};

/// Reconciles a Node with the state of the checks.
#[derive(Debug)]
pub struct Reconciler {
    pub(super) settings: Settings,
    node: String,
    /// The running kernel's boot id; `None` if unknown.
    pub(super) boot_id: Option<String>,
    hysteresis: Hysteresis,
    desired: Option<Ready>,
    details: Option<ConditionDetails>,
    /// The checks of the last Event that weren't a recovery.
    failed: Vec<(CheckName, Reason)>,
    written: Option<ConditionDetails>,
    condition_budget: WriteBudget,
    taint_budget: WriteBudget,
    heartbeat: Heartbeat,
    has_started: bool,
    /// No earlier status is known, so the first completed round applies at once.
    is_first_status: bool,
    /// Whether a round of this process has completed.
    has_completed: bool,
}

impl Reconciler {
    /// A reconciler that hasn't observed the Node.
    pub fn new(settings: Settings, node: impl Into<String>, boot_id: Option<String>) -> Self {
        Self {
            settings,
            node: node.into(),
            boot_id,
            hysteresis: Hysteresis::default(),
            desired: None,
            details: None,
            failed: Vec::new(),
            written: None,
            condition_budget: WriteBudget::default(),
            taint_budget: WriteBudget::default(),
            heartbeat: Heartbeat::default(),
            has_started: false,
            is_first_status: false,
            has_completed: false,
        }
    }

    /// The status that the Node should show; `None` before any is known.
    pub const fn desired(&self) -> Option<Ready> {
        self.desired
    }

    /// Compares the checks with what the Node shows.
    pub fn reconcile(&mut self, now: Now, checks: CheckState<'_>, observed: &ObservedNode) -> Actions {
        if !self.has_started {
            self.has_started = true;
            self.start(observed);
        }
        let current = ConditionDetails::of(checks);
        let mut actions = Actions { event: self.settle(now.elapsed, checks, &current), ..Actions::default() };
        actions.is_settling = self.desired.is_some_and(|desired| desired != current.status);
        // Before its first round, a process has less information than the one that wrote the condition.
        let has_checked = !matches!(checks, CheckState::Pending);
        if has_checked && self.desired == Some(current.status) && !self.is_first_status {
            self.details = Some(current);
        }
        if let (Some(desired), Some(details)) = (self.desired, self.details.clone()) {
            actions.update = self.update(now, desired, &details, observed, &mut actions.deferred_for);
            actions.taint = self.taint(now.elapsed, desired, observed, &mut actions.deferred_for);
        }
        let has_new_details =
            actions.update.as_ref().is_some_and(|update| update.cause == WriteCause::Details);
        if has_new_details && actions.event.is_none() && self.desired == Some(Ready::False) {
            actions.event = self.event(Ready::False);
        }
        actions
    }

    /// Continues from what the Node shows, unless that is from before the last boot.
    fn start(&mut self, observed: &ObservedNode) {
        let Some(condition) = &observed.condition else {
            self.is_first_status = true;
            return;
        };
        if self.boot_id.is_none() || self.boot_id == observed.boot_id {
            self.desired = Some(condition.status);
            self.details = Some(ConditionDetails::observed(condition));
        } else {
            self.is_first_status = true;
            self.desired = Some(Ready::Unknown);
            self.details = Some(ConditionDetails::since_boot());
        }
    }

    /// Updates the desired status, and returns an Event if it has changed.
    fn settle(
        &mut self,
        now: Duration,
        checks: CheckState<'_>,
        current: &ConditionDetails,
    ) -> Option<NodeEvent> {
        let held = self.hysteresis.record(now, current.status);
        self.has_completed |= matches!(checks, CheckState::Completed(_));
        let applies_at_once = match checks {
            CheckState::Completed(_) => self.is_first_status,
            // The status on the Node is from a process whose checks could run.
            CheckState::Failed(_) => !self.has_completed,
            CheckState::Pending | CheckState::Hanging => false,
        };
        if self.desired == Some(current.status) && !applies_at_once {
            return None;
        }
        let required = match current.status {
            _ if applies_at_once => Duration::ZERO,
            Ready::False => self.settings.fail_after,
            Ready::True => self.hysteresis.recovery_delay(now, self.settings.recover_after),
            Ready::Unknown => self.settings.unknown_after,
        };
        if held < required {
            return None;
        }
        self.is_first_status = false;
        let before = self.desired.replace(current.status);
        self.details = Some(current.clone());
        if before == Some(current.status) {
            return None;
        }
        self.condition_budget.expect_transition();
        self.taint_budget.expect_transition();
        if before == Some(Ready::True) {
            self.hysteresis.count_failure(now);
        }
        self.event(current.status)
    }

    fn event(&mut self, status: Ready) -> Option<NodeEvent> {
        let details = self.details.as_ref()?;
        let mut message = details.message.clone();
        let (reason, checks) = if status == Ready::True {
            let recovered = std::mem::take(&mut self.failed);
            if !recovered.is_empty() {
                let names: Vec<&str> = recovered.iter().map(|(name, _)| name.as_str()).collect();
                message = format!("{message}; recovered: {}", names.join(", "));
            }
            ("DumpReady", recovered)
        } else {
            self.failed = details.problems.iter().flatten().map(Problem::check).collect();
            let reason = if status == Ready::False { "DumpNotReady" } else { "DumpReadinessUnknown" };
            (reason, self.failed.clone())
        };
        Some(NodeEvent { warning: status != Ready::True, reason, message, checks })
    }

    /// The update that makes the Node show the desired state.
    fn update(
        &mut self,
        now: Now,
        desired: Ready,
        details: &ConditionDetails,
        observed: &ObservedNode,
        deferred_for: &mut Option<Duration>,
    ) -> Option<NodeUpdate> {
        let label = label(desired);
        let matching = observed.condition.as_ref().filter(|condition| {
            condition.status == desired
                && observed.label.as_deref() == Some(label)
                && (self.boot_id.is_none() || observed.boot_id == self.boot_id)
        });
        let cause = match matching {
            None => {
                let cause = self.condition_budget.observe_mismatch(now.elapsed);
                if cause.is_none() {
                    *deferred_for = Some(self.condition_budget.wait(now.elapsed));
                }
                cause?
            }
            Some(condition) => {
                self.condition_budget.observe_match();
                let due = self.heartbeat.due(now, &self.node, condition.heartbeat, self.settings.heartbeat);
                if !self.shows_details(condition, details) && self.condition_budget.take(now.elapsed) {
                    WriteCause::Details
                } else if due <= now.elapsed {
                    WriteCause::Heartbeat
                } else {
                    return None;
                }
            }
        };
        let same_status = observed.condition.as_ref().filter(|condition| condition.status == desired);
        let condition = Condition {
            status: desired,
            reason: details.reason.clone(),
            message: details.message.clone(),
            heartbeat: now.wall,
            transition: same_status.map_or(now.wall, |condition| condition.transition),
        };
        self.written = Some(details.clone());
        Some(NodeUpdate { cause, condition, label, boot_id: self.boot_id.clone() })
    }

    /// Whether the condition shows the current problems. A message may contain numbers that differ in every round, which
    /// aren't written before the next heartbeat.
    fn shows_details(&self, condition: &Condition, details: &ConditionDetails) -> bool {
        let is_equal =
            |other: &ConditionDetails| condition.message == other.message && condition.reason == other.reason;
        is_equal(details)
            || self.written.as_ref().is_some_and(|written| {
                is_equal(written) && written.problems.is_some() && written.problems == details.problems
            })
    }

    /// While the status is unknown, the taint remains as it is.
    fn taint(
        &mut self,
        now: Duration,
        desired: Ready,
        observed: &ObservedNode,
        deferred_for: &mut Option<Duration>,
    ) -> Option<bool> {
        let wanted = match desired {
            Ready::False => self.settings.taint,
            Ready::Unknown => self.settings.taint && observed.tainted,
            Ready::True => false,
        };
        if wanted == observed.tainted {
            self.taint_budget.observe_match();
            return None;
        }
        let cause = self.taint_budget.observe_mismatch(now);
        if cause.is_none() {
            *deferred_for = Some(self.taint_budget.wait(now));
        }
        cause.map(|_| wanted)
    }
}

/// The value of the label.
pub(super) const fn label(ready: Ready) -> &'static str {
    match ready {
        Ready::True => "true",
        Ready::False => "false",
        Ready::Unknown => "unknown",
    }
}
