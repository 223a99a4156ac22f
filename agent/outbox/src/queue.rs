//! What waits, by place, by key and by episode.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::entry::{Kind, Offered, Pending};

/// The entries that wait. Its indexes follow from `entries` alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    entries: BTreeMap<u64, Pending>,
    by_key: HashMap<String, BTreeSet<u64>>,
    heads: BTreeSet<u64>,
    by_id: HashMap<String, Episode>,
}

/// Where the entries of an episode are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Episode {
    pub(crate) occur: Option<u64>,
    pub(crate) recover: Option<u64>,
    pub(crate) once: Option<u64>,
}

impl Episode {
    pub(crate) fn of(self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Occur => self.occur,
            Kind::Recover => self.recover,
            Kind::Once => self.once,
        }
    }

    fn slot(&mut self, kind: Kind) -> &mut Option<u64> {
        match kind {
            Kind::Occur => &mut self.occur,
            Kind::Recover => &mut self.recover,
            Kind::Once => &mut self.once,
        }
    }

    /// Any place of it.
    pub(crate) fn any(self) -> Option<u64> {
        self.occur.or(self.recover).or(self.once)
    }
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Pending> {
        self.entries.get(&seq)
    }

    /// All, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.entries.values()
    }

    /// The first of each key, in order.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &Pending> {
        self.heads.iter().filter_map(|seq| self.entries.get(seq))
    }

    /// All of a key, in order.
    pub(crate) fn of_key(&self, key: &str) -> impl Iterator<Item = &Pending> {
        self.by_key.get(key).into_iter().flatten().filter_map(|seq| self.entries.get(seq))
    }

    /// Where the entries of an episode are.
    pub(crate) fn episode(&self, id: &str) -> Episode {
        self.by_id.get(id).copied().unwrap_or_default()
    }

    pub(crate) fn insert(&mut self, pending: Pending) {
        let (seq, entry) = (pending.seq, &pending.entry);
        let places = self.by_key.entry(entry.key.clone()).or_default();
        let head = places.first().copied();
        places.insert(seq);
        if head.is_none_or(|head| seq < head) {
            if let Some(head) = head {
                self.heads.remove(&head);
            }
            self.heads.insert(seq);
        }
        *self.by_id.entry(entry.id.clone()).or_default().slot(entry.kind) = Some(seq);
        self.entries.insert(seq, pending);
    }

    pub(crate) fn remove(&mut self, seq: u64) -> Option<Pending> {
        let pending = self.entries.remove(&seq)?;
        let entry = &pending.entry;
        if let Some(places) = self.by_key.get_mut(&entry.key) {
            places.remove(&seq);
            if self.heads.remove(&seq)
                && let Some(head) = places.first()
            {
                self.heads.insert(*head);
            }
            if places.is_empty() {
                self.by_key.remove(&entry.key);
            }
        }
        if let Some(episode) = self.by_id.get_mut(&entry.id) {
            *episode.slot(entry.kind) = None;
            if episode.any().is_none() {
                self.by_id.remove(&entry.id);
            }
        }
        Some(pending)
    }

    /// Notes that `seq` was offered once more; whether that changed anything.
    pub(crate) fn offer(&mut self, seq: u64) -> bool {
        let Some(pending) = self.entries.get_mut(&seq) else { return false };
        let before = pending.offered;
        pending.offered = if before == Offered::Never { Offered::Once } else { Offered::Again };
        pending.offered != before
    }
}
