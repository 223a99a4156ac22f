//! What others see of the relay: Events, metrics, the condition, `/status`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use swansong_fault_model::device_plugin::PluginState;
use tracing::warn;

use super::looks::device_info;
use super::{Task, millis_of};
use crate::relay::condition::{self, Known};
use crate::relay::store::Store;
use crate::relay::terms::{Hold, Step};
use crate::relay::view::View;

/// How often `/status` is made anew at most: it is a copy of all that stands.
const VIEW_PACE: Duration = Duration::from_millis(250);

impl Task<'_> {
    /// What waits, and why.
    pub(super) fn note_holds(&mut self, store: &Store, step: &Step) {
        let holds: Vec<Hold> = step.holds.values().copied().collect();
        self.parts.metrics.holds(&holds);
        let heads = store.heads(&self.episodes);
        let held = |hold| heads.iter().filter(move |head| step.holds.get(&head.seq) == Some(&hold));
        let mut carried = BTreeSet::new();
        for head in held(Hold::Carried) {
            if !self.carried.contains(head.id) {
                self.parts.story.carried(head.id, head.episode);
            }
            carried.insert(head.id.to_owned());
        }
        let now = self.now();
        let mut objected = BTreeMap::new();
        for head in held(Hold::Objected) {
            let Some(preflight) = self.preflights.get(&head.episode.subject) else { continue };
            let Some(text) = preflight.objections.first().map(ToString::to_string) else { continue };
            let before = self.objected.remove(head.id);
            if before.as_ref().is_none_or(|(_, before)| *before != text) {
                warn!(head.id, objection = text, "a fault isn't told, since nothing would be saved");
                let pods = self.parts.inputs.pods.borrow().clone().unwrap_or_default();
                self.parts.story.held_back(head.id, head.episode, &preflight.objections, &pods);
            }
            objected.insert(head.id.to_owned(), (before.map_or(now, |(since, _)| since), text));
        }
        // While the jobs are looked at anew, what was objected stands.
        objected.extend(held(Hold::Preflight).filter_map(|head| self.objected.remove_entry(head.id)));
        drop(heads);
        self.carried = carried;
        self.objected = objected;
    }

    /// What the Node and the metrics show.
    pub(super) fn tell(&mut self, store: &Store) {
        let counts = store.counts();
        self.full &= self.episodes.is_unplaced();
        let unended = self.relay.refused_recovery().and_then(|seq| {
            let heads = store.heads(&self.episodes);
            heads.iter().find(|head| head.seq == seq).map(|head| head.id.to_owned())
        });
        let unended = unended.as_deref().map(|id| (id, "its end; ClusterD's log has the reason"));
        if self.accepted_at.len() > counts.standing {
            let stands = store.stands(&self.episodes);
            let standing: BTreeSet<&str> = stands.iter().map(|stands| stands.id).collect();
            self.accepted_at.retain(|id, _| standing.contains(id.as_str()));
        }
        self.parts.metrics.outbox(counts, store.problem().is_none());
        let stands = |id: &str| self.episodes.standing().any(|(standing, _)| standing == id);
        let blind =
            self.blind.iter().map(|((source, subject), why)| format!("{source} can't see {subject}: {why}"));
        let unheld = self.episodes.unheld();
        let unheld = unheld.map(|(id, episode)| {
            format!(
                "{id} stands by the word of {}, which is switched off: nobody can tell when it is over",
                episode.source
            )
        });
        let known = Known {
            now: self.now(),
            trouble: self.relay.trouble(),
            objection: self.objected.values().min().cloned(),
            not_durable: store.problem(),
            full: self.full,
            unplaced: self.episodes.is_unplaced(),
            unheard: self.relay.unheard().next(),
            refused: unended.or_else(|| store.last_refused().filter(|(id, _)| stands(id))),
            unpublished: self.unpublished(),
            blind: blind.chain(unheld).next(),
            waiting: counts.pending,
        };
        let told = condition::decide(&known);
        self.parts.told.send_if_modified(|before| {
            let new = before.as_ref() != Some(&told);
            if new {
                *before = Some(told.clone());
            }
            new
        });
    }

    fn unpublished(&self) -> Option<(&'static str, String)> {
        let now = millis_of(self.now());
        let publishes = self.parts.inputs.device_plugin.borrow().state(now);
        // Before anybody looked nothing is wrong yet.
        let is_known = publishes != PluginState::Unknown;
        let why = device_info(&publishes).filter(|_| is_known)?;
        Some((publishes.reason(), why))
    }

    /// Shows in `/status` how things are. The answer is when that is to be done, if not now.
    pub(super) fn show(&mut self, store: &Store) -> Option<Duration> {
        let now = self.now();
        if now < self.view_not_before {
            return Some(self.view_not_before);
        }
        self.view_not_before = now + VIEW_PACE;
        let told = self.parts.told.borrow().clone();
        let view = View::of(told.as_ref(), &self.episodes, store, &self.relay, now);
        self.parts.view.send_replace(Some(Arc::new(view)));
        None
    }
}
