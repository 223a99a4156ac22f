//! From what the sources say to the outbox.

use std::sync::Arc;

use swansong_fault::{Assertion, Code, Level, Seen, Severity, Why};
use swansong_outbox::Appended;
use tracing::{info, warn};

use super::Task;
use crate::fault::Levels;
use crate::relay::episode::Episode;
use crate::relay::episodes::{Change, Classify};
use crate::relay::route::millis;
use crate::relay::store::{Store, with};
use crate::run::Ended;

/// The classification of the moment.
struct Classes(Arc<Levels>);

impl Classify for Classes {
    fn level(&self, code: &Code, severity: Option<Severity>) -> (Level, String) {
        let (level, because) = self.0.classifier.level(code, severity);
        (level, format!("{}, {}", because.as_str(), self.0.origin.as_str()))
    }
}

impl Task<'_> {
    /// From what the sources say to the outbox.
    pub(super) async fn take_in(
        &mut self,
        store: Store,
        seen: &[(&'static str, Seen)],
    ) -> Result<Store, Ended> {
        let classes = Classes(self.parts.inputs.levels.borrow().clone());
        let devices = self.parts.inputs.devices();
        let now = self.parts.clock.now();
        let mut changes = Vec::new();
        for (source, seen) in seen {
            self.note_blindness(source, seen);
            for change in self.episodes.take_in(source, seen, &classes, &devices) {
                self.follow(&change, now);
                changes.push(change);
            }
        }
        changes.extend(self.apply_rules(now));
        self.parts.metrics.dropped(self.episodes.dropped());
        self.keep(store, changes).await
    }

    pub(super) fn note_blindness(&mut self, source: &'static str, seen: &Seen) {
        match seen {
            Seen::Blind { subject, why } => drop(self.blind.insert((source, *subject), why.clone())),
            Seen::All { subject, .. } => drop(self.blind.remove(&(source, *subject))),
            Seen::Event(_) => {}
        }
    }

    pub(super) fn follow(&mut self, change: &Change, now: u64) {
        let Episode { subject, code, .. } = &change.episode;
        match change.assertion {
            Assertion::Occur => self.escalation.occurred(*subject, code, now),
            Assertion::Recover => self.escalation.recovered(*subject, code, now),
            Assertion::Once => drop(self.escalation.happened(*subject, code, now)),
        }
    }

    /// What the rules on frequency and duration make of what stands.
    pub(super) fn apply_rules(&mut self, now: u64) -> Vec<Change> {
        self.escalation.advance(now);
        let Self { episodes, escalation, .. } = self;
        let standing = episodes.standing().map(|(_, episode)| episode);
        // Found first, since what stands can't be changed while it is gone through.
        let differing: Vec<_> = standing
            .filter_map(|episode| match escalation.raised(episode.subject, &episode.code, now) {
                Some(raise) if !episode.raised && raise.level > episode.level => {
                    Some((episode.clone(), Some(raise)))
                }
                None if episode.raised => Some((episode.clone(), None)),
                _ => None,
            })
            .collect();
        let mut changes = Vec::new();
        for (episode, raise) in differing {
            changes.extend(match raise {
                Some(raise) => {
                    let because = match raise.why {
                        Why::Repeated { times, window } => format!("raised: {times} times within {window:?}"),
                        Why::Lasted { after } => format!("raised: it stands for more than {after:?}"),
                    };
                    self.episodes.raise(&episode, raise.level, because, millis())
                }
                None => self.episodes.lower(episode.subject, &episode.code),
            });
        }
        changes
    }

    pub(super) async fn keep(&mut self, store: Store, changes: Vec<Change>) -> Result<Store, Ended> {
        for change in &changes {
            self.parts.metrics.saw(change.assertion);
            self.announce(change);
        }
        let notices = self.parts.settings.notices;
        let changes: Vec<Change> =
            changes.into_iter().filter(|change| notices || is_told(&change.episode)).collect();
        if changes.is_empty() {
            return Ok(store);
        }
        let (store, (changes, appended)) = with(store, move |store| {
            let appended = store.append(&changes);
            (changes, appended)
        })
        .await?;
        self.full = false;
        for (change, appended) in changes.iter().zip(&appended) {
            match appended {
                Appended::Full => {
                    self.full = true;
                    self.episodes.forget(&change.id);
                }
                Appended::Unfit(why) => warn!(id = change.id, %why, "a fault can't be kept"),
                _ => {}
            }
        }
        Ok(store)
    }

    pub(super) fn announce(&self, change: &Change) {
        let Change { id, assertion, episode } = change;
        let pods = self.parts.inputs.pods.borrow().clone().unwrap_or_default();
        info!(id, ?assertion, fault = episode.describe(), because = episode.because, "a fault");
        let told = is_told(episode) || self.parts.settings.notices;
        match assertion {
            Assertion::Occur if told => self.parts.story.came(id, episode, &pods),
            Assertion::Recover if told => self.parts.story.went(id, episode),
            Assertion::Once if told => self.parts.story.happened(id, episode),
            _ => {}
        }
    }
}

/// Whether it is told at all, unless notices are.
fn is_told(episode: &Episode) -> bool {
    episode.class() != swansong_clusterd::Class::Notice
}
