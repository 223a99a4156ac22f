//! Which job to look at, and when. Time comes in as an argument.
//!
//! A job is looked at when it appears, when its ConfigMap changes or goes, and again after a while where no watch would
//! tell that something has changed. Looking finds out the rest, so what is remembered of a job is little.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

use crate::decide::Because;
use crate::job::JobKind;
use crate::news::Standings;

/// Between two looks at one job, however often its ConfigMap changes.
const LEAST: Duration = Duration::from_secs(1);

/// Between two looks where nothing tells of a change: a ConfigMap without the label, the label of a namespace.
const RECHECK: Duration = Duration::from_mins(10);

/// Before a job that had come to its end is looked at again because it changed all the same.
const FINISHED: Duration = Duration::from_mins(1);

/// Pauses while something that is on its way out hasn't gone; each is twice the one before.
const LEAVING: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Pauses after a creation that the API server refused.
const REFUSED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));

/// Between two Events of different texts about one job.
const TELL_OTHER: Duration = Duration::from_mins(1);

/// Between two Events of the same text; API servers keep them for an hour.
const TELL_AGAIN: Duration = Duration::from_mins(30);

/// What names a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its kind: two of different kinds may share a name, and a ConfigMap.
    pub kind: JobKind,
}

/// What a look at a job has brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is a usable ConfigMap. Its version, if it has the label by which it is watched.
    Sound(Option<String>),
    /// Nothing is to be done.
    Nothing(Because),
    /// People are to be told of the ConfigMap.
    Unusable,
    /// The API server won't have it created; it may have said when to ask again.
    Refused(Option<Duration>),
    /// The job is no more, or another has its name: the watch will tell.
    Gone,
    /// The API server couldn't be asked.
    Unknown,
}

/// How a job stands, as metrics have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Pending,
    Sound,
    Nothing,
    Finished,
    Unusable,
    Refused,
}

#[derive(Debug)]
struct Entry {
    uid: Box<str>,
    due: Option<Instant>,
    looked: Option<Instant>,
    /// Looks in a row that brought nothing new.
    waits: u32,
    standing: Standing,
    /// Of the labelled ConfigMap, as judged last or told by the watch since.
    version: Option<Box<str>>,
    /// Whether the list that is being read has had it so far, and its ConfigMap.
    listed: bool,
    config_map_listed: bool,
    told: Option<Told>,
}

/// The Event told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    text: u64,
    at: Instant,
    count: i32,
}

/// All jobs that need a ConfigMap.
#[derive(Debug, Default)]
pub struct Agenda {
    jobs: BTreeMap<Key, Entry>,
    due: BTreeSet<(Instant, Key)>,
    standings: Standings,
}

impl Agenda {
    /// A job that needs one is there, new or changed.
    pub fn needed(&mut self, key: &Key, uid: &str, now: Instant) {
        match self.jobs.get_mut(key) {
            Some(entry) if *entry.uid == *uid => {
                entry.listed = true;
                if entry.standing == Standing::Finished {
                    let at = entry.looked.map_or(now, |looked| looked + FINISHED).max(now);
                    self.schedule(key, Some(at));
                }
            }
            _ => {
                self.forget(key);
                let entry = Entry {
                    uid: uid.into(),
                    due: None,
                    looked: None,
                    waits: 0,
                    standing: Standing::Pending,
                    version: None,
                    listed: true,
                    config_map_listed: true,
                    told: None,
                };
                *self.standings.of(entry.standing) += 1;
                self.jobs.insert(key.clone(), entry);
                self.schedule(key, Some(now));
            }
        }
    }

    /// A job is no more, or needs none any more.
    pub fn forget(&mut self, key: &Key) {
        self.schedule(key, None);
        if let Some(entry) = self.jobs.remove(key) {
            *self.standings.of(entry.standing) -= 1;
        }
    }

    /// All jobs of a kind are going to be told anew.
    pub fn list_begins(&mut self, kind: JobKind) {
        self.jobs.iter_mut().filter(|(key, _)| key.kind == kind).for_each(|(_, entry)| entry.listed = false);
    }

    /// All were told: what wasn't is no more.
    pub fn list_ends(&mut self, kind: JobKind) {
        let gone = self.jobs.iter().filter(|(key, entry)| key.kind == kind && !entry.listed);
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        for key in &gone {
            self.forget(key);
        }
    }

    /// The labelled ConfigMap of jobs of this name has this version.
    pub fn config_map_changed(&mut self, namespace: &str, job: &str, version: &str, now: Instant) {
        self.each_of_name(namespace, job, |agenda, key| {
            let Some(entry) = agenda.jobs.get_mut(key) else { return };
            entry.config_map_listed = true;
            if entry.version.as_deref() != Some(version) {
                entry.version = Some(version.into());
                agenda.look_soon(key, now);
            }
        });
    }

    /// The labelled ConfigMap of jobs of this name is gone, or has lost its label.
    pub fn config_map_gone(&mut self, namespace: &str, job: &str, now: Instant) {
        self.each_of_name(namespace, job, |agenda, key| {
            let Some(entry) = agenda.jobs.get_mut(key) else { return };
            entry.version = None;
            agenda.look_soon(key, now);
        });
    }

    /// All labelled ConfigMaps are going to be told anew.
    pub fn config_map_list_begins(&mut self) {
        self.jobs.values_mut().for_each(|entry| entry.config_map_listed = false);
    }

    /// All were told.
    pub fn config_map_list_ends(&mut self, now: Instant) {
        let gone = self.jobs.iter().filter(|(_, entry)| entry.version.is_some() && !entry.config_map_listed);
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.config_map_gone(&key.namespace, &key.name, now);
        }
    }

    /// When there is something to look at.
    pub fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The job to look at now, and its UID. [`settle`](Self::settle) has to follow.
    pub fn take(&mut self, now: Instant) -> Option<(Key, String)> {
        let (_, key) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        self.schedule(&key, None);
        let entry = self.jobs.get_mut(&key)?;
        entry.looked = Some(now);
        Some((key, entry.uid.as_ref().to_owned()))
    }

    /// What came of a look. `chance` is from 0 to 1: replicas and jobs are to spread out.
    pub fn settle(&mut self, key: &Key, outcome: Outcome, now: Instant, chance: f64) {
        let Some(entry) = self.jobs.get_mut(key) else { return };
        let spread = |pause: Duration| pause + pause.mul_f64(chance / 4.0);
        let mut backoff = |(first, last): (Duration, Duration)| {
            let pause = first.saturating_mul(1 << entry.waits.min(16)).min(last);
            entry.waits = entry.waits.saturating_add(1);
            spread(pause)
        };
        let (standing, pause) = match &outcome {
            Outcome::Sound(Some(_)) => (Standing::Sound, None),
            Outcome::Sound(None) => (Standing::Sound, Some(spread(RECHECK))),
            Outcome::Nothing(Because::Leaving) => (Standing::Pending, Some(backoff(LEAVING))),
            Outcome::Nothing(Because::NamespaceOptedOut | Because::NamespaceEnds) => {
                (Standing::Nothing, Some(spread(RECHECK)))
            }
            Outcome::Nothing(Because::Finished) => (Standing::Finished, None),
            Outcome::Nothing(_) | Outcome::Gone => (Standing::Nothing, None),
            Outcome::Unusable => (Standing::Unusable, Some(spread(RECHECK))),
            Outcome::Refused(after) => {
                (Standing::Refused, Some(backoff(REFUSED).max(after.unwrap_or_default())))
            }
            Outcome::Unknown => (entry.standing, Some(Duration::ZERO)),
        };
        if !matches!(outcome, Outcome::Nothing(Because::Leaving) | Outcome::Refused(_) | Outcome::Unknown) {
            entry.waits = 0;
        }
        if let Outcome::Sound(version) = outcome {
            entry.version = version.map(Into::into);
        }
        *self.standings.of(entry.standing) -= 1;
        *self.standings.of(standing) += 1;
        entry.standing = standing;
        self.schedule(key, pause.map(|pause| now + pause));
    }

    /// Whether an Event may be told about a job now; how often it was told before.
    pub fn may_tell(&self, key: &Key, text: &str, now: Instant) -> Option<i32> {
        match self.jobs.get(key)?.told {
            None => Some(0),
            Some(told) if told.text == hash(text) => {
                (now.duration_since(told.at) >= TELL_AGAIN).then_some(told.count)
            }
            Some(told) => (now.duration_since(told.at) >= TELL_OTHER).then_some(0),
        }
    }

    /// An Event was told.
    pub fn told(&mut self, key: &Key, text: &str, now: Instant) {
        let Some(entry) = self.jobs.get_mut(key) else { return };
        let text = hash(text);
        let before = entry.told.filter(|told| told.text == text).map_or(0, |told| told.count);
        entry.told = Some(Told { text, at: now, count: before.saturating_add(1) });
    }

    /// How the jobs stand.
    pub const fn standings(&self) -> Standings {
        self.standings
    }

    fn each_of_name(&mut self, namespace: &str, job: &str, change: impl Fn(&mut Self, &Key)) {
        for kind in JobKind::ALL {
            change(self, &Key { namespace: namespace.to_owned(), name: job.to_owned(), kind });
        }
    }

    fn look_soon(&mut self, key: &Key, now: Instant) {
        let Some(entry) = self.jobs.get(key) else { return };
        let at = entry.looked.map_or(now, |looked| looked + LEAST).max(now);
        let at = entry.due.map_or(at, |due| due.min(at));
        self.schedule(key, Some(at));
    }

    fn schedule(&mut self, key: &Key, due: Option<Instant>) {
        let Some(entry) = self.jobs.get_mut(key) else { return };
        if let Some(before) = std::mem::replace(&mut entry.due, due) {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(due) = due {
            self.due.insert((due, key.clone()));
        }
    }
}

impl Standings {
    const fn of(&mut self, standing: Standing) -> &mut u64 {
        match standing {
            Standing::Pending => &mut self.pending,
            Standing::Sound => &mut self.sound,
            Standing::Nothing | Standing::Finished => &mut self.nothing,
            Standing::Unusable => &mut self.unusable,
            Standing::Refused => &mut self.refused,
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
