//! The exchange with ClusterD and the API server, as background jobs.

use std::sync::Arc;
use std::time::Duration;

use swansong_fault_model::reconcile::{Cause, Observed, OutboundFault, Preflight};
use swansong_fault_model::{Assertion, Subject};
use tracing::{info, warn};

use super::{Done, Pipeline, TICK, device_info_problem};
use crate::clock::{as_millis, unix_millis};
use crate::cluster::JobChecks;
use crate::outcomes::{AffectedJob, CheckedOutcome};
use crate::processes::end_rank;
use crate::public::public_fault;
use crate::sender::batch_error;

impl Pipeline {
    /// Sends a batch when the state that it changes is on disk.
    pub(super) fn send(&mut self, batch: Vec<OutboundFault>, now: Duration) {
        if batch.is_empty() {
            return;
        }
        let (mut faults, mut sent) = (Vec::new(), Vec::new());
        for outbound in batch {
            match public_fault(&self.parts.node, &outbound) {
                Ok(fault) => {
                    faults.push(fault);
                    sent.push(outbound);
                }
                Err(invalid) => {
                    let why = invalid.to_string();
                    warn!(id = outbound.fault.id, why, "ClusterD would never accept the fault");
                    self.parts.events.refused(&outbound.fault.id, &why);
                    self.reconciler.refuse(&mut self.tracker, &outbound, &why, now);
                }
            }
        }
        if sent.is_empty() {
            self.reconciler.complete(&mut self.tracker, sent, Ok(()), now, 0.0);
            return;
        }
        let (parts, written) = (Arc::clone(&self.parts), self.saver.written());
        self.jobs.spawn(async move {
            written.await;
            let (route, answer) = parts.transports.send(&faults).await;
            Done::Sent { route, batch: sent, answer }
        });
    }

    /// Starts the checks of the jobs on `subject`, unless they are under way.
    pub(super) fn check_jobs(&mut self, subject: Subject) {
        if !self.under_way.checks.insert(subject) {
            return;
        }
        let (cluster, inputs, now) = (self.cluster.clone(), self.parts.inputs.clone(), as_millis(self.now()));
        self.jobs.spawn(async move {
            let device_info = device_info_problem(&inputs.device_plugin.borrow().state(now));
            let (pods, activity) = (inputs.pods.borrow().clone(), inputs.activity.borrow().clone());
            let checks = cluster.check_jobs(subject, pods.as_deref(), device_info, &activity).await;
            Done::CheckedJobs(subject, checks)
        });
    }

    /// Reads what ClusterD shows when that is due, or answers when it is.
    pub(super) fn observe(&mut self, now: Duration) -> Option<Duration> {
        let due = self.reconciler.next_observation(&self.tracker)?.max(self.under_way.observe_not_before);
        if now < due {
            return Some(due);
        }
        if !self.under_way.is_observing {
            self.under_way.is_observing = true;
            let (cluster, parts) = (self.cluster.clone(), Arc::clone(&self.parts));
            self.jobs.spawn(async move { Done::Observed(cluster.observe(&parts.node).await) });
        }
        None
    }

    /// Checks the outcomes of jobs if that is due; otherwise returns when it is.
    pub(super) fn check_outcomes(&mut self, now: Duration) -> Option<Duration> {
        match self.outcomes.due(now) {
            Ok(open) => {
                let (cluster, parts) = (self.cluster.clone(), Arc::clone(&self.parts));
                let local = parts.inputs.activity.borrow().clone();
                self.jobs.spawn(async move {
                    Done::CheckedOutcomes(cluster.check_outcomes(open, &parts.node, &local).await)
                });
                None
            }
            Err(due) => due,
        }
    }

    /// Takes the result of a background job.
    pub(super) fn done(&mut self, done: Done) {
        let now = self.now();
        match done {
            Done::Sent { route, batch, answer } => {
                self.parts.metrics.count_batch(route, &answer);
                let route: &str = route.into();
                match &answer {
                    Ok(()) => info!(route, faults = batch.len(), "ClusterD accepted a batch"),
                    Err(error) => warn!(route, %error, "ClusterD didn't accept a batch"),
                }
                let result = answer.map_err(|error| batch_error(&error));
                let completed =
                    self.reconciler.complete(&mut self.tracker, batch, result, now, fastrand::f64());
                for outbound in &completed.accepted {
                    self.accepted(outbound, route, now);
                }
                for (outbound, why) in &completed.refused {
                    self.parts.events.refused(&outbound.fault.id, why);
                }
            }
            Done::CheckedJobs(subject, checks) => self.checked_jobs(subject, checks, now),
            Done::Observed(observed) => self.observed(observed, now),
            Done::CheckedOutcomes(results) => self.checked_outcomes(results, now),
            Done::EndedRank { id, subject, pod, result } => {
                self.parts.metrics.count_rank_ended(&result);
                self.parts.events.rank_ended(&id, &pod, subject, &result);
                match result {
                    Ok(pid) => info!(id, %pod, pid, "ended the rank on a lost device"),
                    Err(error) => warn!(id, %pod, %error, "the rank on a lost device wasn't ended"),
                }
            }
        }
    }

    fn accepted(
        &mut self,
        OutboundFault { fault, assertion, cause }: &OutboundFault,
        route: &str,
        now: Duration,
    ) {
        if *cause == Cause::New {
            #[expect(clippy::cast_precision_loss, reason = "a time of days in milliseconds")]
            let seconds = unix_millis().saturating_sub(fault.since) as f64 / 1000.0;
            self.parts.metrics.count_accepted(*assertion, seconds);
        }
        match (assertion, cause) {
            (Assertion::Occur, Cause::New) => {
                let checked = self.checked.get(&fault.subject).filter(|_| fault.ends_ranks());
                let jobs = checked.map(|checked| checked.checks.jobs.clone()).unwrap_or_default();
                self.parts.events.relayed(fault, &jobs, route);
                self.outcomes.follow(fault, &jobs, now);
            }
            (Assertion::Recover, Cause::New) => self.parts.events.recovery_relayed(fault),
            (_, Cause::Withdrawal) => self.parts.events.withdrawn(fault, "the jobs that it hit have ended"),
            (_, Cause::Unknown) => self.parts.events.withdrawn(fault, "only ClusterD had it"),
            _ => {}
        }
    }

    /// Ends the ranks on a lost device of jobs that ask for it.
    pub(super) fn end_ranks(&mut self, id: &str, subject: Subject, now: Duration) {
        let (Some(checked), Subject::Npu(npu)) = (self.checked.get(&subject), subject) else { return };
        let jobs: Vec<AffectedJob> = checked.checks.jobs.iter().filter(|job| job.is_fast).cloned().collect();
        for pod in self.pods().iter() {
            if !jobs.iter().any(|job| job.pod.uid == pod.reference.uid) {
                continue;
            }
            let (processes, pod, id) = (Arc::clone(&self.parts.inputs.processes), pod.clone(), id.to_owned());
            self.jobs.spawn(async move {
                let reference = Box::new(pod.reference.clone());
                let result = end_rank(processes, pod, npu).await;
                Done::EndedRank { id, subject, pod: reference, result }
            });
        }
        if let Some(fault) = self.tracker.get(id) {
            self.outcomes.follow(fault, &jobs, now);
        }
    }

    fn checked_jobs(&mut self, subject: Subject, checks: JobChecks, now: Duration) {
        self.under_way.checks.remove(&subject);
        self.parts.metrics.set_objections(&checks.objections);
        let before = self.checked.get(&subject).and_then(|checked| checked.preflight.objects_since);
        let objects_since = (!checks.objections.is_empty()).then(|| before.unwrap_or(now));
        // The checks count from their end: an API server may be slow.
        let preflight = Preflight { at: now, objects_since };
        self.checked.insert(subject, super::Checked { preflight, checks });
    }

    fn observed(&mut self, observed: Result<Observed, String>, now: Duration) {
        self.under_way.is_observing = false;
        match observed {
            Ok(observed) => self.reconciler.observe(&mut self.tracker, &observed, now),
            Err(error) => {
                warn!(error, "ClusterD's faults can't be read");
                self.under_way.observe_not_before = now + TICK;
            }
        }
    }

    fn checked_outcomes(&mut self, results: Vec<CheckedOutcome>, now: Duration) {
        for outcome in self.outcomes.record(results, now) {
            self.parts.metrics.count_outcome(&outcome.outcome, outcome.took.as_secs_f64());
            self.parts.events.outcome(&outcome);
            let (id, job, result, took) =
                (&outcome.id, outcome.job.job_name(), &outcome.outcome, outcome.took);
            info!(id, job, ?result, ?took, "a job that a fault hit has an outcome");
            if outcome.is_last {
                self.reconciler.withdraw(&mut self.tracker, id);
            }
        }
    }
}
