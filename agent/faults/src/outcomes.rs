//! The jobs that faults hit, until the outcome of their dump is known.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swansong_fault_model::outcome::{
    EARLIEST_ORDER, Expected, GroupStatus, ORDER_TIMEOUT, Observation, Outcome, Processors, STATUS_TIMEOUT,
};
use swansong_fault_model::{Fault, Subject};

use crate::clock::as_millis;
use crate::pod::{NpuPod, PodReference};
use crate::preflight::{JobState, PodGroup, Warning, warnings};
use crate::processes::{DumpTimes, PodActivity};

/// The shortest and the longest time between two checks of a job: the longer it takes, the longer.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));

/// A fault whose jobs are followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FollowedFault {
    pub subject: Subject,
    /// When ClusterD accepted it, by the pipeline's clock.
    pub accepted_at: Duration,
    /// No dump is ordered before.
    pub order_at: Duration,
    /// The jobs that asked for a dump and whose outcome isn't known.
    pub jobs: Vec<AffectedJob>,
}

/// A job that a fault hits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AffectedJob {
    /// Its Pod on this node.
    #[serde(flatten)]
    pub pod: PodReference,
    /// Whether it asks for a dump.
    pub dumps: bool,
    /// `ProcessRecoverStatus` before the fault.
    pub status_before: Option<String>,
    /// How long it may save.
    pub save_limit: Duration,
    /// Whether it asks for the rank on a lost device to be ended, and `dump` is what ClusterD tries first.
    #[serde(skip)]
    pub is_fast: bool,
    /// What may cost the checkpoint, although a dump is ordered.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// All faults whose jobs are followed.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    followed: BTreeMap<String, FollowedFault>,
    is_checking: bool,
    next_check: Duration,
    has_changed: bool,
}

/// A result that became known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// Id of the fault.
    pub id: String,
    pub subject: Subject,
    pub job: AffectedJob,
    pub outcome: Outcome,
    /// How long it took since ClusterD accepted the fault.
    pub took: Duration,
    /// Whether it was the last one of the fault.
    pub is_last: bool,
    /// The Pod of rank 0, if it runs.
    pub first_pod: Option<PodReference>,
}

impl AffectedJob {
    /// A job that a fault hits by `pod`.
    pub(crate) fn new(pod: &NpuPod, state: &JobState, activity: Option<&PodActivity>) -> Self {
        let group = state.group.as_ref();
        Self {
            pod: pod.reference.clone(),
            dumps: group.is_some_and(PodGroup::dumps),
            status_before: group.and_then(|group| group.status.clone()),
            save_limit: pod.dump.save_limit,
            is_fast: pod.dump.is_fast && group.is_some_and(PodGroup::dumps_first),
            warnings: warnings(pod, state, activity),
        }
    }

    /// The name of the job, or that of the Pod.
    pub fn job_name(&self) -> &str {
        self.pod.job.as_ref().map_or(&self.pod.name, |job| &job.name)
    }
}

impl Outcomes {
    /// Continues with what an earlier process followed.
    pub(crate) fn restore(followed: BTreeMap<String, FollowedFault>) -> Self {
        Self { followed, ..Self::default() }
    }

    /// What is followed, by id of the fault.
    pub(crate) const fn followed(&self) -> &BTreeMap<String, FollowedFault> {
        &self.followed
    }

    /// Whether anything has changed since the last call.
    pub(crate) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.has_changed, false)
    }

    /// Follows the jobs that ask for a dump after `fault`.
    pub(crate) fn follow(&mut self, fault: &Fault, jobs: &[AffectedJob], now: Duration) {
        let jobs: Vec<AffectedJob> = jobs.iter().filter(|job| job.dumps).cloned().collect();
        if jobs.is_empty() {
            return;
        }
        // The rank on the device may have ended with the fault.
        let order_at = (Duration::from_millis(fault.since) + EARLIEST_ORDER).max(now);
        let new = FollowedFault { subject: fault.subject, accepted_at: now, order_at, jobs: Vec::new() };
        let followed = self.followed.entry(fault.id.clone()).or_insert(new);
        let known: Vec<String> = followed.jobs.iter().map(|job| job.pod.uid.clone()).collect();
        // The jobs whose rank is ended are followed before ClusterD's answer.
        followed.jobs.extend(jobs.into_iter().filter(|job| !known.contains(&job.pod.uid)));
        self.next_check = now;
        self.has_changed = true;
    }

    /// The jobs to check now, or when.
    pub(crate) fn due(&mut self, now: Duration) -> Result<Vec<OpenJob>, Option<Duration>> {
        let Some(newest) = self.followed.values().map(|fault| fault.accepted_at).max() else {
            return Err(None);
        };
        if self.is_checking || now < self.next_check {
            return Err((!self.is_checking).then_some(self.next_check));
        }
        let interval = (now.saturating_sub(newest) / 10).clamp(INTERVAL.0, INTERVAL.1);
        (self.is_checking, self.next_check) = (true, now + interval);
        let open = self.followed.iter().flat_map(|(id, fault)| {
            let (since, order) = (fault.accepted_at, fault.order_at);
            fault.jobs.iter().map(move |job| OpenJob { id: id.clone(), job: job.clone(), since, order, now })
        });
        Ok(open.collect())
    }

    /// Takes the results of [`Cluster::check_outcomes`](crate::cluster::Cluster::check_outcomes).
    pub(crate) fn record(&mut self, results: Vec<CheckedOutcome>, now: Duration) -> Vec<JobOutcome> {
        self.is_checking = false;
        let mut outcomes = Vec::new();
        for CheckedOutcome { open: OpenJob { id, job, .. }, outcome, first_pod } in results {
            let Some(fault) = self.followed.get_mut(&id) else { continue };
            let (subject, took) = (fault.subject, now.saturating_sub(fault.accepted_at));
            fault.jobs.retain(|other| other.pod.uid != job.pod.uid);
            let is_last = fault.jobs.is_empty();
            if is_last {
                self.followed.remove(&id);
            }
            self.has_changed = true;
            outcomes.push(JobOutcome { id, subject, job, outcome, took, is_last, first_pod });
        }
        outcomes
    }
}

/// A job without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenJob {
    id: String,
    pub(crate) job: AffectedJob,
    since: Duration,
    order: Duration,
    /// The time of the check.
    now: Duration,
}

impl OpenJob {
    /// Whether ClusterD should have written a status by now, so that others are asked too.
    pub(crate) fn is_late(&self) -> bool {
        self.now.saturating_sub(self.since) >= STATUS_TIMEOUT
    }

    /// Whether the time for saving has not passed.
    pub(crate) fn may_save(&self) -> bool {
        self.now.saturating_sub(self.since) < ORDER_TIMEOUT + self.job.save_limit
    }

    pub(crate) fn times(&self) -> DumpTimes {
        DumpTimes { since: as_millis(self.since), order: as_millis(self.order), now: as_millis(self.now) }
    }

    /// The result, if there is one.
    pub(crate) fn outcome(
        &self,
        group: Option<&PodGroup>,
        processors: Processors,
        renamed: Option<&str>,
    ) -> Option<Outcome> {
        let group =
            group.map(|group| GroupStatus { status: group.status.as_deref(), is_paused: group.is_paused });
        let waited = self.now.saturating_sub(self.since);
        let observation = Observation { group, processors, renamed, waited };
        observation.outcome(Expected {
            status_before: self.job.status_before.as_deref(),
            save_limit: self.job.save_limit,
        })
    }
}

/// The outcome of a job that was checked.
#[derive(Debug)]
pub(crate) struct CheckedOutcome {
    pub(crate) open: OpenJob,
    pub(crate) outcome: Outcome,
    /// The Pod of rank 0, which keeps its devices after a dump.
    pub(crate) first_pod: Option<PodReference>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_is_not_ordered_before_mindio_can_have_missed_a_rank() {
        const MILLIS: u64 = 1_784_000_000_000;
        let fault = Fault { since: MILLIS, ..Fault::from_id("n") };
        let at = |seconds| Duration::from_millis(MILLIS) + Duration::from_secs(seconds);
        let job = |uid: &str| AffectedJob {
            pod: PodReference { uid: uid.to_owned(), ..PodReference::default() },
            dumps: true,
            ..AffectedJob::default()
        };
        for (accepted, order) in [(1, 9), (5, 9), (60, 60)] {
            let mut outcomes = Outcomes::default();
            outcomes.follow(&fault, &[job("fast")], at(accepted));
            // ClusterD answers after it has shown the fault.
            outcomes.follow(&fault, &[job("fast"), job("other")], at(accepted + 1));
            let followed = &outcomes.followed()["n"];
            assert_eq!((followed.accepted_at, followed.order_at), (at(accepted), at(order)));
            assert_eq!(followed.jobs.len(), 2);
        }
    }
}
