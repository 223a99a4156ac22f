//! What became of the jobs that a fault hit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::{Done, Task};
use crate::api::ApiServer;
use crate::relay::look;
use crate::relay::preflight::Group;
use crate::relay::store::{Store, with};
use crate::relay::story::{GONE, UNKNOWN};
use crate::relay::terms::JobNote;
use swansong_runtime::supervisor::TaskError;

/// How often ClusterD is asked what became of the jobs.
const OUTCOME_PACE: Duration = Duration::from_secs(2);
/// ClusterD waits at most fifteen minutes for a dump; then comes what it does afterwards.
const OUTCOME_PATIENCE: Duration = Duration::from_mins(20);

impl Task<'_> {
    /// Asks what became of the jobs that standing faults hit. The answer is when to ask again.
    pub(super) fn ask_outcomes(&mut self, store: &Store, now: Duration) -> Option<Duration> {
        let mut open = Vec::new();
        for stands in store.stands(&self.episodes) {
            let jobs = stands.note.jobs.iter().enumerate();
            open.extend(
                jobs.filter(|(_, job)| job.dumps && job.outcome.is_none())
                    .map(|(place, job)| (stands.id.to_owned(), place, job.clone())),
            );
        }
        if open.is_empty() {
            self.outcomes_at = None;
            return None;
        }
        let at = *self.outcomes_at.get_or_insert(now);
        if at > now || self.asking {
            return Some(at.max(now + OUTCOME_PACE));
        }
        self.asking = true;
        self.outcomes_at = Some(now + OUTCOME_PACE);
        let parts = Arc::clone(self.parts);
        let waited: BTreeMap<String, Duration> = open
            .iter()
            .map(|(id, _, _)| {
                let since = *self.accepted_at.entry(id.clone()).or_insert(now);
                (id.clone(), now.saturating_sub(since))
            })
            .collect();
        self.jobs.spawn(async move {
            let mut outcomes = Vec::new();
            for (id, place, job) in open {
                let outcome = outcome(&parts.api, &job, waited[&id]).await;
                outcomes.extend(outcome.map(|outcome| (id, place, outcome)));
            }
            Done::Outcomes(outcomes)
        });
        Some(now + OUTCOME_PACE)
    }

    pub(super) async fn outcomes(
        &mut self,
        store: Store,
        outcomes: Vec<(String, usize, String)>,
    ) -> Result<Store, TaskError> {
        if outcomes.is_empty() {
            return Ok(store);
        }
        for stands in store.stands(&self.episodes) {
            let mut jobs = stands.note.jobs.clone();
            for (_, place, outcome) in outcomes.iter().filter(|(id, _, _)| id == stands.id) {
                let Some(job) = jobs.get_mut(*place) else { continue };
                let took = self.accepted_at.get(stands.id).map(|at| self.now().saturating_sub(*at));
                self.parts.metrics.outcome(outcome, took.map(|took| took.as_secs_f64()));
                self.parts.story.outcome(stands.id, stands.episode.subject, job, outcome);
                info!(id = stands.id, job = job.job.name, outcome, ?took, "what became of a job");
                job.outcome = Some(outcome.clone());
            }
            if jobs.iter().all(|job| !job.dumps || job.outcome.is_some()) {
                info!(id = stands.id, "all jobs that were to dump by it have ended");
            }
        }
        let (store, ()) = with(store, move |store| {
            for (id, place, outcome) in outcomes {
                store.change(&id, |note| {
                    if let Some(job) = note.jobs.get_mut(place) {
                        job.outcome = Some(outcome);
                    }
                });
            }
        })
        .await?;
        Ok(store)
    }
}

/// What became of a job, if that can be told.
///
/// That the pod has gone says nothing: the one on the faulty node ends before the others have saved.
async fn outcome(api: &ApiServer, job: &JobNote, waited: Duration) -> Option<String> {
    let group = if job.group.is_empty() {
        Some(Group::default())
    } else {
        match look::group(api, &job.namespace, &job.group).await {
            Ok(group) => group,
            Err(error) => {
                warn!(%error, "what became of a job can't be looked at");
                return None;
            }
        }
    };
    judge(group, job.before.as_ref(), waited)
}

/// What a PodGroup says after a fault; it said `before` when the fault was told.
fn judge(group: Option<Group>, before: Option<&String>, waited: Duration) -> Option<String> {
    let Some(group) = group else { return Some(GONE.to_owned()) };
    let has_ended = group.paused || waited >= OUTCOME_PATIENCE;
    match group.status {
        Some(status) if Some(&status) != before => (has_ended || !is_step(&status)).then_some(status),
        // ClusterD writes the same word for a second dump as for the first, and none if something took too long. Which of
        // them can't be told, but it has ended.
        Some(_) | None => has_ended.then(|| UNKNOWN.to_owned()),
    }
}

/// Whether ClusterD goes on to the next strategy after this (`handleCheckRecoverResult`).
fn is_step(status: &str) -> bool {
    matches!(status, "retry-failed" | "recover-failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_second_recovery_is_seen_though_its_word_is_the_same() {
        const SAVED: &str = "dump-success";
        let group = |status: Option<&str>, paused| {
            Some(Group { status: status.map(str::to_owned), paused, enabled: !paused, ..Group::default() })
        };
        let soon = Duration::from_secs(10);
        for (group, before, waited, expected) in [
            (None, None, soon, Some(GONE)),
            (group(None, false), None, soon, None),
            (group(None, true), None, soon, Some(UNKNOWN)),
            (group(None, false), None, OUTCOME_PATIENCE, Some(UNKNOWN)),
            (group(Some(SAVED), false), None, soon, Some(SAVED)),
            (group(Some(SAVED), true), None, soon, Some(SAVED)),
            (group(Some("dump-failed"), true), Some(SAVED), soon, Some("dump-failed")),
            // It still says what it said before this fault.
            (group(Some(SAVED), false), Some(SAVED), soon, None),
            (group(Some(SAVED), true), Some(SAVED), soon, Some(UNKNOWN)),
            // With several strategies the dump comes after the others have failed.
            (group(Some("recover-failed"), false), None, soon, None),
            (group(Some("recover-failed"), true), None, soon, Some("recover-failed")),
            (group(Some("recover-failed"), false), None, OUTCOME_PATIENCE, Some("recover-failed")),
            (group(Some(SAVED), false), Some("recover-failed"), soon, Some(SAVED)),
        ] {
            let what = format!("{group:?}, {before:?} before");
            let judged = judge(group, before.map(str::to_owned).as_ref(), waited);
            assert_eq!(judged.as_deref(), expected, "{what}");
        }
    }
}
