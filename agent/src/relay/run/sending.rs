//! Batches to ClusterD, and what its answers mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd::process_fault::Cause;
use swansong_clusterd::{PublicFault, SendError};
use swansong_fault_model::{Assertion, Code};
use tracing::{info, warn};

use super::{Done, Reported, Task};
use crate::fault::millis;
use crate::relay::episode::Episode;
use crate::relay::route::Route;
use crate::relay::store::{Store, with};
use crate::relay::terms::{JobNote, Note, Parcel, Verdict};
use swansong_runtime::supervisor::TaskError;

/// MindCluster's code of a device that has dropped.
const DROPPED: u32 = 0x40F8_4E00;

impl Task<'_> {
    pub(super) async fn send(&mut self, mut store: Store, batch: Vec<Parcel>) -> Result<Store, TaskError> {
        let mut parcels = Vec::new();
        let mut faults: Vec<PublicFault> = Vec::new();
        let mut refused: Vec<Verdict> = Vec::new();
        for parcel in batch {
            match parcel.episode.fault(&self.parts.node, &parcel.id, parcel.assertion) {
                Ok(fault) => {
                    faults.push(fault);
                    parcels.push(parcel);
                }
                Err(invalid) => {
                    warn!(id = parcel.id, %invalid, "ClusterD would never take it");
                    self.parts.story.refused(&parcel.id, &invalid.to_string());
                    refused.extend(self.relay.refused(&parcel, &invalid.to_string(), self.now()));
                }
            }
        }
        if !refused.is_empty() {
            store = with(store, move |store| store.settle(&refused, |_| Note::default(), millis())).await?.0;
        }
        if parcels.is_empty() {
            return Ok(store);
        }
        let places: Vec<u64> = parcels.iter().filter_map(Parcel::place).collect();
        let (store, ()) = with(store, move |store| store.offer(&places)).await?;
        self.sending = true;
        let parts = Arc::clone(self.parts);
        self.jobs.spawn(async move {
            let (route, answer) = parts.routes.send(&faults).await;
            Done::Sent { route, batch: parcels, answer }
        });
        Ok(store)
    }

    pub(super) async fn sent(
        &mut self,
        store: Store,
        route: Route,
        batch: &[Parcel],
        answer: &Result<(), SendError>,
    ) -> Result<Store, TaskError> {
        self.parts.metrics.sent(route, answer);
        let now = self.now();
        match answer {
            Ok(()) => info!(route = route.as_str(), faults = batch.len(), "ClusterD took a batch"),
            Err(error) => warn!(route = route.as_str(), %error, "ClusterD didn't take a batch"),
        }
        let verdicts = self.relay.answered(batch, answer, now, fastrand::f64());
        let mut notes = BTreeMap::new();
        if answer.is_ok() {
            for parcel in batch {
                self.arrived(parcel, route, now, &mut notes);
            }
        }
        for (parcel, verdict) in batch.iter().zip(&verdicts) {
            if let Verdict::Refuse(_, why) = verdict {
                self.parts.story.refused(&parcel.id, why);
            }
        }
        let (store, ()) = with(store, move |store| {
            store.settle(&verdicts, |id| notes.get(id).cloned().unwrap_or_default(), millis());
        })
        .await?;
        Ok(store)
    }

    fn arrived(&mut self, parcel: &Parcel, route: Route, now: Duration, notes: &mut BTreeMap<String, Note>) {
        let Parcel { id, assertion, episode, .. } = parcel;
        let is_first = parcel.place().is_some();
        if is_first {
            #[expect(clippy::cast_precision_loss, reason = "a time of days in milliseconds")]
            let seconds = millis().saturating_sub(episode.began) as f64 / 1000.0;
            self.parts.metrics.accepted(*assertion, (*assertion == Assertion::Occur).then_some(seconds));
        }
        match assertion {
            Assertion::Occur if is_first => {
                let preflight = self.preflights.get(&episode.subject).filter(|_| episode.kills());
                let jobs = preflight.map(|preflight| preflight.jobs.clone()).unwrap_or_default();
                self.parts.story.relayed(id, episode, &jobs, route.as_str());
                self.report_ranks(id, episode, &jobs);
                self.accepted_at.insert(id.clone(), now);
                notes.insert(id.clone(), Note { jobs, ..Note::default() });
            }
            Assertion::Recover if is_first => self.parts.story.recovered(id, episode),
            Assertion::Recover => self.parts.story.recalled(id, episode),
            _ => {}
        }
    }

    /// The direct way, for jobs that ask for it and a device that is certainly lost.
    fn report_ranks(&mut self, id: &str, episode: &Episode, jobs: &[JobNote]) {
        if !self.parts.settings.fast_dump || episode.code != Code::from(DROPPED) {
            return;
        }
        for job in jobs.iter().filter(|job| !job.fast_ranks.is_empty()) {
            let (parts, id, job) = (Arc::clone(self.parts), id.to_owned(), job.clone());
            self.jobs.spawn(async move {
                let ranks = &job.fast_ranks;
                let result = parts.routes.grpc.report_process_fault(&job.job.uid, ranks, Cause::Other).await;
                Done::Reported(Box::new(Reported { id, job, result }))
            });
        }
    }

    /// What came of the direct way. Where nothing did, ClusterD goes the longer one by itself.
    pub(super) fn reported(&self, Reported { id, job, result }: &Reported) {
        self.parts.metrics.reported(result);
        self.parts.story.reported(id, job, result);
        let (name, ranks) = (&job.job.name, &job.fast_ranks);
        match result {
            Ok(()) => info!(id, job = name, ?ranks, "told ClusterD which ranks are lost"),
            Err(error) => {
                warn!(id, job = name, ?ranks, %error, "ClusterD can't be told directly which ranks are lost");
            }
        }
    }
}
