//! Outcomes of the jobs that a fault hit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swansong_fault_model::Subject;

use crate::pod::{NpuPod, Owner};
use crate::preflight::PodGroup;

/// How often ClusterD's result is read.
const INTERVAL: Duration = Duration::from_secs(2);
/// ClusterD waits up to fifteen minutes for a dump, and then for what follows.
const TIMEOUT: Duration = Duration::from_mins(20);

/// The PodGroup was deleted before ClusterD reported a result.
pub(crate) const GONE: &str = "gone";
/// ClusterD reported no result, or the same as for an earlier fault.
pub(crate) const UNKNOWN: &str = "unknown";

/// A fault whose jobs are followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FollowedFault {
    pub subject: Subject,
    /// When ClusterD accepted it, by the pipeline's clock.
    pub accepted_at: Duration,
    /// The jobs that asked for a dump.
    pub jobs: Vec<AffectedJob>,
}

/// A job that a fault hits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AffectedJob {
    pub namespace: String,
    /// Name of its Pod on this node.
    pub pod: String,
    pub pod_uid: String,
    /// The container that Events refer to.
    pub container: String,
    /// Name of its PodGroup.
    pub group: String,
    /// The job itself.
    pub job: Owner,
    /// Whether it asks for a dump.
    pub dumps: bool,
    /// `ProcessRecoverStatus` before the fault.
    pub status_before: Option<String>,
    pub outcome: Option<String>,
    /// The global ranks to report directly, where the Pod asks for that.
    pub fast_ranks: Vec<u32>,
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
    /// How long it took since ClusterD accepted the fault.
    pub took: Duration,
    /// Whether it was the last one of the fault.
    pub is_last: bool,
}

impl AffectedJob {
    /// A job that a fault of `subject` hits by `pod`.
    pub fn new(pod: &NpuPod, subject: Subject, group: Option<&PodGroup>) -> Self {
        let fast = pod.fast_dump && group.is_some_and(PodGroup::dumps_first);
        Self {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
            container: pod.container.clone(),
            group: pod.group.clone().unwrap_or_default(),
            job: pod.job.clone().unwrap_or_default(),
            dumps: group.is_some_and(PodGroup::dumps),
            status_before: group.and_then(|group| group.status.clone()),
            outcome: None,
            fast_ranks: if fast { pod.ranks(subject) } else { Vec::new() },
        }
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

    /// Follows the jobs that ask for a dump.
    pub(crate) fn follow(&mut self, id: &str, subject: Subject, jobs: &[AffectedJob], now: Duration) {
        let jobs: Vec<AffectedJob> = jobs.iter().filter(|job| job.dumps).cloned().collect();
        if !jobs.is_empty() {
            self.followed.insert(id.to_owned(), FollowedFault { subject, accepted_at: now, jobs });
            self.has_changed = true;
        }
    }

    /// The jobs to check now, or when.
    pub(crate) fn due(&mut self, now: Duration) -> Result<Vec<OpenJob>, Option<Duration>> {
        if self.followed.is_empty() {
            return Err(None);
        }
        if self.is_checking || now < self.next_check {
            return Err((!self.is_checking).then_some(self.next_check));
        }
        (self.is_checking, self.next_check) = (true, now + INTERVAL);
        let open = self.followed.iter().flat_map(|(id, fault)| {
            let waited = now.saturating_sub(fault.accepted_at);
            let jobs = fault.jobs.iter().enumerate().filter(|(_, job)| job.outcome.is_none());
            jobs.map(move |(place, job)| OpenJob { id: id.clone(), place, job: job.clone(), waited })
        });
        Ok(open.collect())
    }

    /// Takes the results of [`Cluster::check_outcomes`](crate::cluster::Cluster::check_outcomes).
    pub(crate) fn record(&mut self, results: Vec<(OpenJob, String)>, now: Duration) -> Vec<JobOutcome> {
        self.is_checking = false;
        let mut outcomes = Vec::new();
        for (OpenJob { id, place, .. }, outcome) in results {
            let Some(fault) = self.followed.get_mut(&id) else { continue };
            let (subject, took) = (fault.subject, now.saturating_sub(fault.accepted_at));
            let Some(job) = fault.jobs.get_mut(place) else { continue };
            job.outcome = Some(outcome);
            let job = job.clone();
            let is_last = fault.jobs.iter().all(|job| job.outcome.is_some());
            if is_last {
                self.followed.remove(&id);
            }
            self.has_changed = true;
            outcomes.push(JobOutcome { id, subject, job, took, is_last });
        }
        outcomes
    }
}

/// A job without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenJob {
    id: String,
    place: usize,
    job: AffectedJob,
    waited: Duration,
}

impl OpenJob {
    pub(crate) const fn job(&self) -> &AffectedJob {
        &self.job
    }

    /// The result that the job's PodGroup shows, if there is one.
    pub(crate) fn outcome(&self, group: Option<PodGroup>) -> Option<String> {
        judge(group, self.job.status_before.as_ref(), self.waited)
    }
}

/// The result that a PodGroup shows after a fault; its status was `before` when the fault was sent.
fn judge(group: Option<PodGroup>, before: Option<&String>, waited: Duration) -> Option<String> {
    let Some(group) = group else { return Some(GONE.to_owned()) };
    let has_ended = group.is_paused || waited >= TIMEOUT;
    match group.status {
        Some(status) if Some(&status) != before => (has_ended || !is_step(&status)).then_some(status),
        // ClusterD writes the same status for a second dump as for the first, and none after a timeout.
        Some(_) | None => has_ended.then(|| UNKNOWN.to_owned()),
    }
}

/// Whether ClusterD tries the next strategy after this status (`handleCheckRecoverResult`).
fn is_step(status: &str) -> bool {
    matches!(status, "retry-failed" | "recover-failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_recovery_with_the_same_status_is_noticed() {
        const SAVED: &str = "dump-success";
        let group = |status: Option<&str>, is_paused| {
            Some(PodGroup {
                status: status.map(str::to_owned),
                is_paused,
                is_enabled: !is_paused,
                ..PodGroup::default()
            })
        };
        let soon = Duration::from_secs(10);
        for (group, before, waited, expected) in [
            (None, None, soon, Some(GONE)),
            (group(None, false), None, soon, None),
            (group(None, true), None, soon, Some(UNKNOWN)),
            (group(None, false), None, TIMEOUT, Some(UNKNOWN)),
            (group(Some(SAVED), false), None, soon, Some(SAVED)),
            (group(Some(SAVED), true), None, soon, Some(SAVED)),
            (group(Some("dump-failed"), true), Some(SAVED), soon, Some("dump-failed")),
            // The status is of an earlier fault.
            (group(Some(SAVED), false), Some(SAVED), soon, None),
            (group(Some(SAVED), true), Some(SAVED), soon, Some(UNKNOWN)),
            // The dump comes after the other strategies have failed.
            (group(Some("recover-failed"), false), None, soon, None),
            (group(Some("recover-failed"), true), None, soon, Some("recover-failed")),
            (group(Some("recover-failed"), false), None, TIMEOUT, Some("recover-failed")),
            (group(Some(SAVED), false), Some("recover-failed"), soon, Some(SAVED)),
        ] {
            let what = format!("{group:?}, {before:?} before");
            let judged = judge(group, before.map(str::to_owned).as_ref(), waited);
            assert_eq!(judged.as_deref(), expected, "{what}");
        }
    }
}
