//! What is looked at beside: the jobs on a device, and what ClusterD has.

use std::sync::Arc;

use swansong_fault_model::Subject;
use swansong_fault_model::device_plugin::PluginState;
use tracing::warn;

use super::{Done, TICK, Task, millis_of};
use crate::api::ApiError;
use crate::fault::millis;
use crate::relay::look;
use crate::relay::reconcile::View;
use crate::relay::store::{Store, with};
use crate::relay::terms::{Note, Preflight};
use swansong_runtime::supervisor::TaskError;

impl Task<'_> {
    pub(super) fn preflight(&mut self, subject: Subject) {
        if !self.preflighting.insert(subject) {
            return;
        }
        let parts = Arc::clone(self.parts);
        let now = self.now();
        self.jobs.spawn(async move {
            let device_info = device_info(&parts.inputs.device_plugin.borrow().state(millis_of(now)));
            let pods = parts.inputs.pods.borrow().clone();
            let preflight = look::preflight(&parts.api, subject, pods.as_deref(), device_info).await;
            Done::Preflighted(subject, preflight)
        });
    }

    pub(super) fn preflighted(&mut self, subject: Subject, preflight: Preflight) {
        self.preflighting.remove(&subject);
        // It counts from when it was known: an API server may be slow.
        let now = self.now();
        let before = self.preflights.get(&subject).filter(|before| !before.objections.is_empty());
        let since = before.map_or(now, |before| before.since);
        let preflight = Preflight { at: now, since, ..preflight };
        self.parts.metrics.objects(&preflight.objections);
        self.preflights.insert(subject, preflight);
    }

    pub(super) fn look(&mut self) {
        self.looking = true;
        let parts = Arc::clone(self.parts);
        self.jobs.spawn(async move { Done::Looked(look::view(&parts.api, &parts.node).await) });
    }

    pub(super) async fn looked(
        &mut self,
        store: Store,
        view: Result<View, ApiError>,
    ) -> Result<Store, TaskError> {
        let now = self.now();
        let view = match view {
            Ok(view) => view,
            Err(error) => {
                warn!(%error, "what ClusterD has can't be looked at");
                self.look_not_before = now + TICK.max(error.retry_after().unwrap_or_default());
                return Ok(store);
            }
        };
        let verdicts =
            self.relay.confirm(&view, &store.heads(&self.episodes), &store.stands(&self.episodes), now);
        if verdicts.is_empty() {
            return Ok(store);
        }
        let (store, ()) =
            with(store, move |store| store.settle(&verdicts, |_| Note::default(), millis())).await?;
        Ok(store)
    }
}

/// Why ClusterD wouldn't take a fault of this node.
pub(super) fn device_info(publishes: &PluginState) -> Option<String> {
    match publishes {
        PluginState::Fresh | PluginState::Stale { .. } => None,
        PluginState::Missing => Some("is missing".to_owned()),
        PluginState::Invalid(invalid) => Some(format!("can't be taken: {invalid}")),
        PluginState::Unknown => Some("hasn't been looked at yet".to_owned()),
    }
}
