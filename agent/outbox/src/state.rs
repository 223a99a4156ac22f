//! The outbox as it stands, without clock and disk: an operation changes it, and it remembers which records
//! that touched.
//!
//! What is in memory and what is on disk are the same by construction: the disk gets the touched records, as
//! they are now.

use std::collections::{BTreeMap, BTreeSet};

use crate::entry::{Appended, Counts, DeadLetter, Entry, Kind, Limits, Offered, Pending, Standing, Unfit};
use crate::queue::Queue;
use crate::record::RecordKey;

mod restore;

pub(crate) use self::restore::Records;

/// The outbox as it stands.
#[derive(Debug, Clone)]
pub(crate) struct State {
    limits: Limits,
    next: u64,
    queue: Queue,
    standing: BTreeMap<String, Standing>,
    dead: BTreeMap<u64, DeadLetter>,
    /// What counts against the limit: everything in `queue` but recoveries, and `standing`.
    bytes: usize,
    slots: usize,
    coalesced: u64,
    full: u64,
    touched: BTreeSet<RecordKey>,
}

/// What became of a refused entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is no such entry.
    Missing,
    /// It is a dead letter, and the receiver doesn't have it. With it went its recovery, if one waited.
    Dead {
        /// The recovery that went with it.
        recovery: Option<u64>,
    },
    /// It is a dead letter, but the receiver may have it from an earlier attempt whose answer was lost. So it
    /// stands until its recovery is taken.
    Doubtful,
    /// It was a recovery: it is a dead letter, and its episode goes on standing, so that it may be recovered
    /// once more.
    Stands,
}

impl State {
    /// An empty one, whose first entry gets place `first`.
    pub(crate) fn new(limits: Limits, first: u64) -> Self {
        Self {
            limits,
            next: first,
            queue: Queue::default(),
            standing: BTreeMap::new(),
            dead: BTreeMap::new(),
            bytes: 0,
            slots: 0,
            coalesced: 0,
            full: 0,
            touched: BTreeSet::new(),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn standing(&self) -> impl Iterator<Item = &Standing> {
        self.standing.values()
    }

    pub(crate) fn standing_of(&self, id: &str) -> Option<&Standing> {
        self.standing.get(id)
    }

    pub(crate) fn dead_letters(&self) -> impl Iterator<Item = &DeadLetter> {
        self.dead.values()
    }

    pub(crate) fn dead_letter(&self, seq: u64) -> Option<&DeadLetter> {
        self.dead.get(&seq)
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            pending: self.queue.len(),
            standing: self.standing.len(),
            dead_letters: self.dead.len(),
            bytes: self.bytes,
            coalesced: self.coalesced,
            full: self.full,
        }
    }

    /// The records touched since the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<RecordKey> {
        std::mem::take(&mut self.touched)
    }

    /// Every record there is.
    pub(crate) fn all(&self) -> impl Iterator<Item = RecordKey> {
        let next = std::iter::once(RecordKey::Next);
        let pending = self.queue.iter().map(|pending| RecordKey::Pending(pending.seq));
        let standing = self.standing.keys().cloned().map(RecordKey::Standing);
        let dead = self.dead.keys().copied().map(RecordKey::Dead);
        next.chain(pending).chain(standing).chain(dead)
    }

    /// See [`crate::Outbox::append`].
    pub(crate) fn append(&mut self, entry: Entry) -> Appended {
        if let Err(unfit) = self.fits(&entry) {
            return Appended::Unfit(unfit);
        }
        let episode = self.queue.episode(&entry.id);
        match entry.kind {
            Kind::Recover if episode.recover.is_none() && !self.knows(&entry.id) => return Appended::Unknown,
            Kind::Occur if episode.recover.is_some() => return Appended::Over,
            Kind::Occur if self.standing.contains_key(&entry.id) => return Appended::Standing,
            kind => {
                if let Some(seq) = episode.of(kind) {
                    return Appended::Pending(seq);
                }
            }
        }
        if entry.kind != Kind::Recover && !self.make_room(&entry) {
            self.full += 1;
            return Appended::Full;
        }
        let seq = self.next;
        self.next += 1;
        self.touched.insert(RecordKey::Next);
        self.insert(Pending { seq, entry, offered: Offered::Never });
        Appended::Stored(seq)
    }

    /// Whether the beginning of an episode waits or stands.
    fn knows(&self, id: &str) -> bool {
        self.standing.contains_key(id) || self.queue.episode(id).occur.is_some()
    }

    fn fits(&self, entry: &Entry) -> Result<(), Unfit> {
        if entry.key.is_empty() || entry.id.is_empty() {
            return Err(Unfit::Empty);
        }
        // A recovery says what its beginning said and maybe a little more; that must never keep it out.
        let limit = self.limits.entry_bytes.saturating_mul(if entry.kind == Kind::Recover { 2 } else { 1 });
        if entry.bytes() > limit {
            return Err(Unfit::TooLarge { bytes: entry.bytes(), limit });
        }
        let episode = self.queue.episode(&entry.id);
        let waiting = episode.any().and_then(|seq| self.queue.get(seq)).map(|pending| &pending.entry.key);
        let standing = self.standing.get(&entry.id).map(|standing| &standing.key);
        if let Some(key) = waiting.or(standing)
            && *key != entry.key
        {
            return Err(Unfit::OtherKey { key: key.clone() });
        }
        let known = episode.occur.is_some() || episode.recover.is_some() || standing.is_some();
        let clash = if entry.kind == Kind::Once { known } else { episode.once.is_some() };
        if clash { Err(Unfit::OtherKind) } else { Ok(()) }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.slots < self.limits.entries && self.bytes.saturating_add(bytes) <= self.limits.bytes
    }

    /// Lets go of episodes that are over and that nobody was told of: first those of the same key, then all.
    fn make_room(&mut self, entry: &Entry) -> bool {
        let bytes = entry.bytes();
        if self.has_room(bytes) {
            return true;
        }
        let key: Vec<u64> = self.queue.of_key(&entry.key).map(|pending| pending.seq).collect();
        self.coalesce(&key);
        if !self.has_room(bytes) {
            let all: Vec<u64> = self.queue.iter().map(|pending| pending.seq).collect();
            self.coalesce(&all);
        }
        self.has_room(bytes)
    }

    fn coalesce(&mut self, places: &[u64]) {
        for seq in places {
            let Some(pending) = self.queue.get(*seq) else { continue };
            let recovery = self.queue.episode(&pending.entry.id).recover;
            if pending.entry.kind != Kind::Occur || pending.offered != Offered::Never {
                continue;
            }
            if let Some(recovery) = recovery {
                self.remove(*seq);
                self.remove(recovery);
                self.coalesced += 1;
            }
        }
    }

    /// See [`crate::Outbox::mark_offered`].
    pub(crate) fn mark_offered(&mut self, places: &[u64]) -> Vec<u64> {
        let mut there = Vec::with_capacity(places.len());
        for seq in places {
            let Some(pending) = self.queue.get(*seq) else { continue };
            there.push(*seq);
            // Nothing hangs on whether a recovery was sent before: no write for it.
            if pending.entry.kind != Kind::Recover && self.queue.offer(*seq) {
                self.touched.insert(RecordKey::Pending(*seq));
            }
        }
        there
    }

    /// See [`crate::Outbox::accept`].
    pub(crate) fn accept(&mut self, places: &[u64], at: u64) -> Vec<u64> {
        let mut there = Vec::with_capacity(places.len());
        for seq in places {
            let Some(pending) = self.remove(*seq) else { continue };
            there.push(*seq);
            match pending.entry.kind {
                Kind::Occur => self.stand(pending.entry, at, true),
                Kind::Recover => {
                    // Only the beginning that it recovers, should there be another from a file that was read late.
                    let occur = self.queue.episode(&pending.entry.id).occur;
                    if let Some(occur) = occur.filter(|occur| occur < seq) {
                        self.remove(occur);
                    }
                    self.fall(&pending.entry.id);
                }
                Kind::Once => {}
            }
        }
        there
    }

    /// See [`crate::Outbox::withdraw`].
    pub(crate) fn withdraw(&mut self, places: &[u64]) -> Vec<u64> {
        let mut gone = Vec::new();
        for seq in places {
            let Some(pending) = self.queue.get(*seq) else { continue };
            let episode = self.queue.episode(&pending.entry.id);
            // Who withdraws a recovery withdraws its episode.
            let first = if pending.entry.kind == Kind::Recover { episode.occur } else { Some(*seq) };
            let Some(first) = first.and_then(|first| self.queue.get(first)) else { continue };
            if first.offered != Offered::Never || self.standing.contains_key(&first.entry.id) {
                continue;
            }
            let both = [Some(first.seq), episode.recover];
            gone.extend(both.into_iter().flatten().filter(|seq| self.remove(*seq).is_some()));
        }
        gone
    }

    /// See [`crate::Outbox::refuse`].
    pub(crate) fn refuse(&mut self, seq: u64, why: &str, at: u64) -> Refused {
        let Some(pending) = self.remove(seq) else { return Refused::Missing };
        let (entry, offered) = (pending.entry.clone(), pending.offered);
        self.bury(DeadLetter { seq, entry: pending.entry, why: cut(why).to_owned(), refused_at: at });
        match entry.kind {
            Kind::Recover if self.knows(&entry.id) => Refused::Stands,
            Kind::Recover | Kind::Once => Refused::Dead { recovery: None },
            Kind::Occur if offered == Offered::Again => {
                self.stand(entry, at, false);
                Refused::Doubtful
            }
            Kind::Occur => {
                let recovery = self.queue.episode(&entry.id).recover;
                if let Some(recovery) = recovery {
                    self.remove(recovery);
                }
                Refused::Dead { recovery }
            }
        }
    }

    /// See [`crate::Outbox::note`].
    pub(crate) fn note(&mut self, id: &str, note: &[u8]) -> bool {
        let Some(standing) = self.standing.get_mut(id).filter(|_| note.len() <= self.limits.entry_bytes)
        else {
            return false;
        };
        if standing.note != note {
            self.bytes = self.bytes - standing.note.len() + note.len();
            standing.note = note.to_vec();
            self.touched.insert(RecordKey::Standing(id.to_owned()));
        }
        true
    }

    fn insert(&mut self, pending: Pending) {
        if pending.entry.kind != Kind::Recover {
            self.bytes += pending.entry.bytes();
            self.slots += 1;
        }
        self.touched.insert(RecordKey::Pending(pending.seq));
        self.queue.insert(pending);
    }

    fn remove(&mut self, seq: u64) -> Option<Pending> {
        let pending = self.queue.remove(seq)?;
        if pending.entry.kind != Kind::Recover {
            self.bytes -= pending.entry.bytes();
            self.slots -= 1;
        }
        self.touched.insert(RecordKey::Pending(seq));
        Some(pending)
    }

    fn stand(&mut self, entry: Entry, accepted_at: u64, certain: bool) {
        let Entry { key, id, at, body, .. } = entry;
        let note = self.fall(&id).map(|standing| standing.note).unwrap_or_default();
        self.put_standing(Standing { key, id, at, accepted_at, certain, body, note });
    }

    fn put_standing(&mut self, standing: Standing) {
        self.bytes += standing.bytes();
        self.slots += 1;
        self.touched.insert(RecordKey::Standing(standing.id.clone()));
        self.standing.insert(standing.id.clone(), standing);
    }

    fn fall(&mut self, id: &str) -> Option<Standing> {
        let standing = self.standing.remove(id)?;
        self.bytes -= standing.bytes();
        self.slots -= 1;
        self.touched.insert(RecordKey::Standing(id.to_owned()));
        Some(standing)
    }

    fn bury(&mut self, letter: DeadLetter) {
        self.touched.insert(RecordKey::Dead(letter.seq));
        self.dead.insert(letter.seq, letter);
        while self.dead.len() > self.limits.dead_letters
            && let Some((seq, _)) = self.dead.pop_first()
        {
            self.touched.insert(RecordKey::Dead(seq));
        }
    }
}

/// A reason of at most 1 KiB.
fn cut(why: &str) -> &str {
    &why[..why.floor_char_boundary(1024)]
}
