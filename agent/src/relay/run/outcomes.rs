//! What became of the jobs that a fault hit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::{Done, Task};
use crate::node::ApiServer;
use crate::relay::look;
use crate::relay::store::{Store, with};
use crate::relay::story::{GONE, UNKNOWN};
use crate::relay::terms::JobNote;
use crate::run::Ended;

/// How often ClusterD is asked what became of the jobs.
const OUTCOME_PACE: Duration = Duration::from_secs(2);
/// ClusterD waits at most fifteen minutes for a dump; then comes what it does afterwards.
const OUTCOME_PATIENCE: Duration = Duration::from_mins(20);

impl Task<'_> {
    /// Asks what became of the jobs that standing faults hit. The answer is when to ask again.
    pub(super) fn ask_outcomes(&mut self, store: &Store, now: Duration) -> Option<Duration> {
        let mut open = Vec::new();
        for stands in store.stands() {
            let jobs = stands.note.jobs.iter().enumerate();
            open.extend(
                jobs.filter(|(_, job)| job.outcome.is_none())
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
    ) -> Result<Store, Ended> {
        if outcomes.is_empty() {
            return Ok(store);
        }
        for stands in store.stands() {
            let mut jobs = stands.note.jobs.clone();
            for (_, place, outcome) in outcomes.iter().filter(|(id, _, _)| id == stands.id) {
                let Some(job) = jobs.get_mut(*place) else { continue };
                let took = self.accepted_at.get(stands.id).map(|at| self.now().saturating_sub(*at));
                self.parts.metrics.outcome(outcome, took.map(|took| took.as_secs_f64()));
                self.parts.story.outcome(stands.id, stands.episode.subject, job, outcome);
                info!(id = stands.id, job = job.job.name, outcome, ?took, "what became of a job");
                job.outcome = Some(outcome.clone());
            }
            let ended = !jobs.is_empty() && jobs.iter().all(|job| job.outcome.is_some());
            if ended {
                info!(id = stands.id, "all jobs that it hit have ended");
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
    if !job.group.is_empty() {
        match look::group(api, &job.namespace, &job.group).await {
            Ok(None) => return Some(GONE.to_owned()),
            Ok(Some(group)) => {
                if group.status.is_some() && group.status != job.before {
                    return group.status;
                }
            }
            Err(error) => {
                warn!(%error, "what became of a job can't be looked at");
                return None;
            }
        }
    }
    (waited >= OUTCOME_PATIENCE).then(|| UNKNOWN.to_owned())
}
