//! A change of authority, step by step, so that at no moment a leaf is served that an API server doesn't trust.
//!
//! ```text
//! steady ──announce──► announced ──promote──► overlap ──retire──► steady
//!          next-ca.*     settle     ca.*, tls.*    replica expiry,
//!          into the      time in    of the next;   and nobody serves
//!          caBundle      every      ca.crt to      the past: out of
//!                        caBundle   previous-ca    Secret and caBundle
//! ```
//!
//! 1. *Announce* ([`decide()`](crate::decide())): a successor is stored, and every replica sees to it that the
//!    `caBundle` has it. The old leaf is still the one that is served.
//! 2. *Promote*: a replica that has itself seen the successor in every `caBundle` for the settle time takes it into
//!    use and signs a leaf. The others serve that leaf as soon as they have seen the same.
//! 3. *Note*: while there is an authority of the past, each replica notes in the Secret whose leaf it serves.
//! 4. *Retire*: an authority of the past goes when a replica has watched for the expiry time of replicas and nobody
//!    who gave a sign of life in it serves its leaves; or when its life is over.
//!
//! No replica leads: each may take any step, and the resource version lets one win. Each step is one write of one
//! object, so whoever dies in between leaves a state from which the others go on. Nothing compares the clocks of two
//! machines: waiting is measured by each replica for itself, on a clock that nobody sets, and begins anew when the
//! replica does.
//!
//! A replica that is running when its authority is lost (a Secret deleted or damaged) goes on serving what it has for
//! the settle time. One that starts then has nothing better than the new leaf. Authorities that are in a `caBundle`
//! and that the Secret has forgotten are *adopted* as ones of the past, so that they are retired in order.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::anchor::{Anchor, AuthorityId};
use crate::content::{Held, SecretData, Trust};
use crate::ledger::{Entry, Ledger, replica_name};
use crate::settings::Settings;

/// Signs of life in each expiry time, so that a lost one or two don't matter.
const BEATS: u32 = 4;

/// What a replica finds in the webhook configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BundleView {
    /// Authorities that are in the `caBundle` of every webhook.
    pub everywhere: Vec<AuthorityId>,
    /// Authorities like ours, in some `caBundle`, of which the Secret knows nothing.
    pub strays: Vec<Anchor>,
}

/// The next step of a change of authority.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// None for now.
    Rest,
    /// Keep these, found in a `caBundle`, as authorities of the past.
    Adopt(Vec<Anchor>),
    /// Take the successor into use.
    Promote,
    /// Trust these no longer. Without any it only clears what has no meaning.
    Retire(Vec<AuthorityId>),
    /// Say in the Secret whose leaf is served.
    Note(Ledger),
}

/// What one replica has seen, by its own clock. `tick` is always that clock: time since some beginning, never set.
#[derive(Clone, Debug)]
pub struct Memory {
    replica: String,
    serving: Option<AuthorityId>,
    /// Since when an authority has been in every `caBundle`; nothing before the first look.
    trusted: Option<BTreeMap<AuthorityId, Duration>>,
    strays: Vec<Anchor>,
    /// Since when an authority has been one of the past.
    past: BTreeMap<AuthorityId, Duration>,
    /// What the replicas noted, and since when that has stood.
    notes: BTreeMap<String, (Entry, Duration)>,
    noted: Option<Duration>,
    looked: Option<Duration>,
}

impl Memory {
    /// The memory of a replica that has seen nothing yet. No two replicas may have the same name.
    pub fn new(replica: &str) -> Self {
        Self {
            replica: replica_name(replica),
            serving: None,
            trusted: None,
            strays: Vec::new(),
            past: BTreeMap::new(),
            notes: BTreeMap::new(),
            noted: None,
            looked: None,
        }
    }

    /// This replica's name as it stands in the ledger.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// The authority of the leaf that this replica serves.
    pub const fn serving(&self) -> Option<&AuthorityId> {
        self.serving.as_ref()
    }

    /// Remembers whose leaf is served from now on.
    pub fn serves(&mut self, authority: &AuthorityId) {
        self.serving = Some(authority.clone());
    }

    /// Remembers what is in the webhook configuration.
    pub fn bundle_seen(&mut self, view: BundleView, tick: Duration) {
        let before = self.trusted.take().unwrap_or_default();
        let since = |id: AuthorityId| {
            let since = before.get(&id).copied().unwrap_or(tick);
            (id, since)
        };
        self.trusted = Some(view.everywhere.into_iter().map(since).collect());
        self.strays = view.strays;
    }

    /// Whether this authority has been in every `caBundle` for the settle time.
    pub fn settled(&self, authority: &AuthorityId, tick: Duration, settings: &Settings) -> bool {
        let since = self.trusted.as_ref().and_then(|trusted| trusted.get(authority));
        since.is_some_and(|since| tick.saturating_sub(*since) >= settings.settle)
    }

    /// Whether to serve a leaf of this authority rather than to stay with what is served.
    pub fn may_serve(&self, authority: &AuthorityId, tick: Duration, settings: &Settings) -> bool {
        let Some(serving) = &self.serving else { return true };
        let forsaken = self.trusted.as_ref().is_some_and(|trusted| !trusted.contains_key(serving));
        serving == authority || forsaken || self.settled(authority, tick, settings)
    }

    /// Takes notice of what the Secret says and tells the next step. At most one is taken at a look.
    pub fn next_step(
        &mut self,
        held: &Held,
        data: &SecretData,
        now: SystemTime,
        tick: Duration,
        settings: &Settings,
    ) -> Step {
        let trust = &held.trust;
        // Who was cut off for long has not watched: others may have been as well, and come back just now.
        let cut_off = self
            .looked
            .replace(tick)
            .is_some_and(|looked| tick.saturating_sub(looked) >= settings.replica_expiry / 2);
        if cut_off {
            self.past.clear();
        }
        self.notice(trust, &data.ledger, tick);
        let strays: Vec<Anchor> = self
            .strays
            .iter()
            .filter(|stray| !trust.knows(stray.id()) && !stray.ended(now))
            .cloned()
            .collect();
        if !strays.is_empty() {
            return Step::Adopt(strays);
        }
        let gone: Vec<AuthorityId> = trust
            .previous
            .iter()
            .filter(|anchor| anchor.ended(now) || self.nobody_needs(anchor.id(), tick, settings))
            .map(|anchor| anchor.id().clone())
            .collect();
        // Left over from damage or a careless hand, and of no meaning.
        let litter = trust.previous.is_empty() && !(data.previous.is_empty() && data.ledger.is_empty());
        if !gone.is_empty() || litter {
            return Step::Retire(gone);
        }
        // One change at a time, which also bounds the bundle.
        if let (Some(next), true) = (&trust.next, trust.previous.is_empty())
            && self.settled(next.id(), tick, settings)
        {
            return Step::Promote;
        }
        self.note(trust, &data.ledger, tick, settings).map_or(Step::Rest, Step::Note)
    }

    fn notice(&mut self, trust: &Trust, ledger: &Ledger, tick: Duration) {
        let before = std::mem::take(&mut self.past);
        for anchor in &trust.previous {
            let since = before.get(anchor.id()).copied().unwrap_or(tick);
            self.past.insert(anchor.id().clone(), since);
        }
        let mut before = std::mem::take(&mut self.notes);
        for (name, entry) in ledger.iter() {
            let known = before.remove(name).filter(|(known, _)| known == entry);
            self.notes.insert(name.to_owned(), known.unwrap_or_else(|| (entry.clone(), tick)));
        }
    }

    fn silent(&self, name: &str, tick: Duration, settings: &Settings) -> bool {
        let since = self.notes.get(name).map(|(_, since)| *since);
        since.is_some_and(|since| tick.saturating_sub(since) >= settings.replica_expiry)
    }

    fn nobody_needs(&self, id: &AuthorityId, tick: Duration, settings: &Settings) -> bool {
        let watched = self.past.get(id).map(|since| tick.saturating_sub(*since));
        let others = self.notes.iter().filter(|(name, _)| **name != self.replica);
        watched.is_some_and(|watched| watched >= settings.replica_expiry)
            && self.serving.as_ref() != Some(id)
            && others
                .into_iter()
                .all(|(name, (entry, _))| entry.serves != *id || self.silent(name, tick, settings))
    }

    /// The ledger with this replica's entry, when that has to be written.
    fn note(
        &mut self,
        trust: &Trust,
        ledger: &Ledger,
        tick: Duration,
        settings: &Settings,
    ) -> Option<Ledger> {
        let serving = self.serving.as_ref().filter(|_| !trust.previous.is_empty())?;
        let current = trust.current.id();
        let beat = match ledger.get(&self.replica) {
            // Who serves the authority in use is waited for by nobody, so it needn't give signs of life.
            Some(entry) if entry.serves == *serving && serving == current => return None,
            Some(entry) if entry.serves == *serving => {
                let since = self.noted.map(|noted| tick.saturating_sub(noted));
                if since.is_some_and(|since| since < settings.replica_expiry / BEATS) {
                    return None;
                }
                entry.beat.wrapping_add(1)
            }
            Some(entry) => entry.beat.wrapping_add(1),
            None => 0,
        };
        let entry = Entry { serves: serving.clone(), beat };
        let mut ledger = ledger.clone();
        ledger.forget(|name| self.silent(name, tick, settings));
        ledger.note(&self.replica, entry, current);
        self.noted = Some(tick);
        Some(ledger)
    }
}
