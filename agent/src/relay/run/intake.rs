//! From what the sources say to the outbox.

use std::sync::Arc;
use std::time::Duration;

use swansong_fault_model::{
    Assertion, ClassifierSource, Code, EscalationReason, Level, Severity, SourceUpdate,
};
use swansong_outbox::Appended;
use tracing::{info, warn};

use super::{TICK, Task, millis_of};
use crate::fault::{Levels, millis};
use crate::relay::episode::Episode;
use crate::relay::episodes::{Change, Classify, Context};
use crate::relay::plan::VOUCH;
use crate::relay::store::{Store, with};
use swansong_runtime::supervisor::TaskError;

/// How long a list of the cluster may be gone before what stands is classified without it.
const LIST_PATIENCE: Duration = Duration::from_mins(5);

/// The classification of the moment.
struct Classes(Arc<Levels>);

impl Classify for Classes {
    fn level(&self, code: &Code, severity: Option<Severity>) -> (Level, String) {
        let (level, because) = self.0.classifier.level(code, severity);
        (level, format!("{}, {}", because, self.0.origin))
    }
}

impl Task<'_> {
    /// From what the sources say to the outbox.
    pub(super) async fn take_in(
        &mut self,
        store: Store,
        seen: &[(&'static str, SourceUpdate)],
    ) -> Result<Store, TaskError> {
        let anew = self.accept_levels();
        let classes = Classes(Arc::clone(&self.levels));
        let devices = self.parts.inputs.devices();
        let context = Context { classify: &classes, devices: &devices };
        let mut changes = if anew { self.episodes.reclassify(&classes) } else { Vec::new() };
        let now = self.now();
        let mut new = Vec::new();
        if self.episodes.is_unplaced() && now >= self.place_not_before {
            new.extend(self.episodes.place(context));
        }
        for (source, seen) in seen {
            self.note_blindness(source, seen);
            new.extend(self.episodes.take_in(source, seen, context));
        }
        for change in new {
            changes.extend(self.follow(change));
        }
        changes.extend(self.apply_rules());
        self.parts.metrics.dropped(self.episodes.dropped());
        self.keep(store, changes).await
    }

    /// Takes the classification of the moment and its rules, unless the one before is better. Whether what stands has to
    /// be classified by it.
    fn accept_levels(&mut self) -> bool {
        let levels = self.parts.inputs.levels.borrow().clone();
        self.classified = levels.has_checked_config_map;
        let is_new = !Arc::ptr_eq(&self.levels, &levels);
        if !self.accepted {
            if is_new {
                self.use_levels(&levels);
            }
            // What an earlier process knew by the cluster's list is better than nothing, or than one that can't be read.
            let is_poor =
                is_unread(&levels) || levels.origin == ClassifierSource::Severity && self.is_patient();
            self.accepted = levels.has_checked_config_map && !is_poor;
            return self.accepted;
        }
        if is_new {
            // A list that is replaced is gone for a moment, and by severity much is graver than lists have it.
            if rank(levels.origin) < rank(self.levels.origin) && self.is_patient() {
                return false;
            }
            self.use_levels(&levels);
            return true;
        }
        self.weaker_since = None;
        std::mem::take(&mut self.rejoined)
    }

    fn use_levels(&mut self, levels: &Arc<Levels>) {
        self.levels = Arc::clone(levels);
        self.weaker_since = None;
        self.escalation.set_rules(levels.rules.clone());
        // Rules that come back don't know what stands.
        self.rules_remember_at.get_or_insert(0);
    }

    /// Whether a list that is gone has been for less than a while.
    fn is_patient(&mut self) -> bool {
        let now = self.now();
        now.saturating_sub(*self.weaker_since.get_or_insert(now)) < LIST_PATIENCE
    }

    /// Joins what the disk held to what happened while it was away.
    pub(super) async fn join(&mut self, store: Store) -> Result<Store, TaskError> {
        let over = store.restore(&mut self.episodes);
        // It may have been classified in another way then.
        self.rejoined = true;
        self.rules_remember_at = Some(self.parts.clock.now() + millis_of(VOUCH));
        self.keep(store, over).await
    }

    /// Tells the rules what an earlier process left standing, once it is known which rules there are and what still
    /// stands. Whether that has been done.
    fn rules_remember(&mut self, now: u64) -> bool {
        match self.rules_remember_at {
            None => return true,
            // A source that sees nothing doesn't say that it is over.
            Some(at) if now < at || !self.classified || !self.blind.is_empty() => return false,
            Some(_) => self.rules_remember_at = None,
        }
        let standing: Vec<Episode> = self.episodes.standing().map(|(_, episode)| episode.clone()).collect();
        for episode in &standing {
            let stands = standing
                .iter()
                .any(|other| !other.raised && other.subject == episode.subject && other.code == episode.code);
            let raised = episode.raised.then_some(episode.level);
            self.escalation.restore(episode.subject, &episode.code, stands, raised, now);
        }
        true
    }

    pub(super) fn note_blindness(&mut self, source: &'static str, seen: &SourceUpdate) {
        match seen {
            SourceUpdate::Unavailable { subject, reason: why } => {
                drop(self.blind.insert((source, *subject), why.clone()))
            }
            SourceUpdate::Snapshot { subject, .. } => drop(self.blind.remove(&(source, *subject))),
            SourceUpdate::Event(_) => {}
        }
    }

    /// Tells the rules what happens. A notice may get a graver level by them, and take the device away by happening too
    /// often.
    fn follow(&mut self, mut change: Change) -> Vec<Change> {
        let now = millis_of(self.now());
        let Episode { subject, code, .. } = &change.episode;
        match change.assertion {
            Assertion::Occur => self.escalation.record_occurrence(*subject, code, now),
            Assertion::Recover => self.escalation.record_recovery(*subject, code, now),
            Assertion::Once => {
                let raise = self.escalation.record_notice(*subject, code, now);
                let lasting = self.escalation.escalated_level(*subject, code, now);
                if let Some(raise) = raise.filter(|raise| raise.level > change.episode.level) {
                    change.episode.level = raise.level;
                    change.episode.because = because(raise.reason);
                }
                let raised = lasting.and_then(|raise| {
                    let of = Episode { once: false, ..change.episode.clone() };
                    self.episodes.raise(&of, raise.level, because(raise.reason), millis())
                });
                return std::iter::once(change).chain(raised).collect();
            }
        }
        vec![change]
    }

    /// What the rules on frequency and duration make of what stands.
    fn apply_rules(&mut self) -> Vec<Change> {
        let now = millis_of(self.now());
        let remembers = self.rules_remember(now);
        self.escalation.advance(now);
        let Self { episodes, escalation, .. } = self;
        let standing = episodes.standing().map(|(_, episode)| episode);
        // Found first, since what stands can't be changed while it is gone through.
        let differing: Vec<_> = standing
            .filter_map(|episode| match escalation.escalated_level(episode.subject, &episode.code, now) {
                Some(raise) if !episode.raised && raise.level > episode.level => {
                    Some((episode.clone(), Some(raise)))
                }
                None if episode.raised && remembers => Some((episode.clone(), None)),
                _ => None,
            })
            .collect();
        let mut changes = Vec::new();
        for (episode, raise) in differing {
            changes.extend(match raise {
                Some(raise) => self.episodes.raise(&episode, raise.level, because(raise.reason), millis()),
                None => self.episodes.lower(episode.subject, &episode.code),
            });
        }
        changes
    }

    pub(super) async fn keep(&mut self, store: Store, changes: Vec<Change>) -> Result<Store, TaskError> {
        let notices = self.parts.settings.notices;
        let (told, untold): (Vec<Change>, Vec<Change>) =
            changes.into_iter().partition(|change| notices || is_told(&change.episode));
        for change in &untold {
            self.announce(change);
        }
        if told.is_empty() {
            return Ok(store);
        }
        let (store, (told, appended)) = with(store, move |store| {
            let appended = store.append(&told);
            (told, appended)
        })
        .await?;
        self.full = false;
        for (change, appended) in told.iter().zip(&appended) {
            match appended {
                Appended::Full => {
                    if !self.full {
                        warn!(id = change.id, "the outbox is full; a fault waits for room");
                    }
                    self.full = true;
                    self.place_not_before = self.now() + TICK;
                    self.episodes.forget(change);
                    continue;
                }
                Appended::Unfit(why) => warn!(id = change.id, %why, "a fault can't be kept"),
                _ => {}
            }
            self.announce(change);
        }
        Ok(store)
    }

    fn announce(&self, change: &Change) {
        let Change { id, assertion, episode } = change;
        self.parts.metrics.saw(*assertion);
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

/// Why a rule raised a level.
fn because(why: EscalationReason) -> String {
    match why {
        EscalationReason::Repeated { times, window } => format!("raised: {times} times within {window:?}"),
        EscalationReason::Lasted { after } => format!("raised: it stands for more than {after:?}"),
    }
}

/// Whether there is a list that can't be read, and no better one.
fn is_unread(levels: &Levels) -> bool {
    levels.origin != ClassifierSource::ConfigMap
        && levels.problems.keys().any(|place| place.ends_with("faultCode.json"))
}

/// How much a classification from there is worth.
const fn rank(origin: ClassifierSource) -> u8 {
    match origin {
        ClassifierSource::Severity => 0,
        ClassifierSource::File => 1,
        ClassifierSource::ConfigMap => 2,
    }
}
