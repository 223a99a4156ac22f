//! What an outbox should hold, written down in the plainest way, without limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use swansong_outbox::{Entry, Kind, Limits, Offered, Outbox};

/// What is done to an outbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Step {
    Append(Vec<(String, String, Kind)>),
    Offer(Vec<u64>),
    Accept(Vec<u64>),
    Withdraw(Vec<u64>),
    Refuse(u64),
    Note(String, Vec<u8>),
}

/// What an outbox should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) next: u64,
    pub(crate) pending: BTreeMap<u64, (String, String, Kind, Offered)>,
    /// Key, whether certain, note; by id.
    pub(crate) standing: BTreeMap<String, (String, bool, Vec<u8>)>,
    pub(crate) dead: Vec<u64>,
}

impl Step {
    /// A step that makes sense, mostly. `fresh` is an id that was never used.
    pub(crate) fn random(random: &mut fastrand::Rng, model: &Model, fresh: &str) -> Self {
        let mut some = |from: Vec<u64>| -> Vec<u64> {
            let count = random.usize(..4);
            random.choose_multiple(from, count)
        };
        let heads = some(model.heads());
        let any = some(model.pending.keys().copied().collect());
        // Refused or withdrawn would be most of it otherwise.
        match random.u32(..if model.pending.len() > 40 { 24 } else { 32 }) {
            0..3 => Self::Offer(heads),
            3..14 => Self::Accept(heads),
            14 => Self::Accept(any),
            15..18 => Self::Withdraw(any),
            18 => any.first().map_or(Self::Withdraw(any.clone()), |seq| Self::Refuse(*seq)),
            19..21 => {
                let id = model.standing.keys().nth(random.usize(..4)).cloned().unwrap_or_default();
                Self::Note(id, vec![random.u8(..); random.usize(..20)])
            }
            _ => Self::Append(
                (0..random.usize(1..5)).map(|n| model.entry(random, &format!("{fresh}-{n}"))).collect(),
            ),
        }
    }

    pub(crate) fn take(&self, outbox: &mut Outbox) {
        match self {
            Self::Append(entries) => {
                outbox.append_all(entries.iter().map(|(key, id, kind)| super::entry(key, id, *kind)));
            }
            Self::Offer(places) => drop(outbox.mark_offered(places)),
            Self::Accept(places) => drop(outbox.accept(places, 5)),
            Self::Withdraw(places) => drop(outbox.withdraw(places)),
            Self::Refuse(seq) => drop(outbox.refuse(*seq, "no", 6)),
            Self::Note(id, note) => {
                outbox.note(id, note);
            }
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self { next: 1, pending: BTreeMap::new(), standing: BTreeMap::new(), dead: Vec::new() }
    }
}

impl Model {
    /// What an outbox holds. Its next place can't be seen from outside.
    pub(crate) fn of(outbox: &Outbox) -> Self {
        let pending = outbox.pending().map(|pending| {
            let Entry { key, id, kind, .. } = pending.entry.clone();
            (pending.seq, (key, id, kind, pending.offered))
        });
        let standing = outbox.standing().map(|standing| {
            (standing.id.clone(), (standing.key.clone(), standing.certain, standing.note.clone()))
        });
        Self {
            next: outbox.next_place(),
            pending: pending.collect(),
            standing: standing.collect(),
            dead: outbox.dead_letters().map(|dead| dead.seq).collect(),
        }
    }

    /// The first place of each key.
    pub(crate) fn heads(&self) -> Vec<u64> {
        let mut heads: BTreeMap<&str, u64> = BTreeMap::new();
        for (seq, (key, ..)) in &self.pending {
            heads.entry(key).or_insert(*seq);
        }
        heads.into_values().collect()
    }

    fn entry(&self, random: &mut fastrand::Rng, fresh: &str) -> (String, String, Kind) {
        let waiting = self.pending.values().map(|(key, id, ..)| (key, id));
        let known: Vec<_> = waiting.chain(self.standing.iter().map(|(id, (key, ..))| (key, id))).collect();
        let kind = [Kind::Occur, Kind::Recover, Kind::Once][random.usize(..3)];
        match random.choice(known) {
            Some((key, id)) if random.u32(..3) > 0 => (key.clone(), id.clone(), kind),
            _ => (format!("npu{}", random.u32(..8)), fresh.to_owned(), kind),
        }
    }

    fn place(&self, id: &str, kind: Kind) -> Option<u64> {
        let found = self.pending.iter().find(|(_, (_, other, there, _))| other == id && *there == kind);
        found.map(|(seq, _)| *seq)
    }

    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            Step::Append(entries) => entries.iter().for_each(|entry| self.append(entry)),
            Step::Offer(places) => places.iter().for_each(|seq| self.offer(*seq)),
            Step::Accept(places) => places.iter().for_each(|seq| self.accept(*seq)),
            Step::Withdraw(places) => places.iter().for_each(|seq| self.withdraw(*seq)),
            Step::Refuse(seq) => self.refuse(*seq),
            Step::Note(id, note) => {
                if let Some((_, _, kept)) = self.standing.get_mut(id) {
                    kept.clone_from(note);
                }
            }
        }
    }

    fn append(&mut self, (key, id, kind): &(String, String, Kind)) {
        let [occur, recover, once] =
            [Kind::Occur, Kind::Recover, Kind::Once].map(|kind| self.place(id, kind));
        let stands = self.standing.contains_key(id);
        let unknown = occur.is_none() && recover.is_none() && once.is_none() && !stands;
        let sound =
            if *kind == Kind::Recover { recover.is_none() && (occur.is_some() || stands) } else { unknown };
        if sound {
            self.pending.insert(self.next, (key.clone(), id.clone(), *kind, Offered::Never));
            self.next += 1;
        }
    }

    fn offer(&mut self, seq: u64) {
        if let Some((_, _, kind, offered)) = self.pending.get_mut(&seq)
            && *kind != Kind::Recover
        {
            *offered = if *offered == Offered::Never { Offered::Once } else { Offered::Again };
        }
    }

    fn accept(&mut self, seq: u64) {
        match self.pending.remove(&seq) {
            Some((key, id, Kind::Occur, _)) => {
                self.standing.entry(id).or_insert((key, true, Vec::new())).1 = true;
            }
            Some((_, id, Kind::Recover, _)) => {
                self.pending.retain(|_, (_, other, kind, _)| *other != id || *kind != Kind::Occur);
                self.standing.remove(&id);
            }
            _ => {}
        }
    }

    fn withdraw(&mut self, seq: u64) {
        let Some((_, id, kind, offered)) = self.pending.get(&seq).cloned() else { return };
        let legal = match kind {
            Kind::Once => offered == Offered::Never,
            Kind::Occur | Kind::Recover => {
                let occur = self.place(&id, Kind::Occur).and_then(|seq| self.pending.get(&seq));
                occur.is_some_and(|(.., offered)| *offered == Offered::Never)
            }
        };
        if legal {
            self.pending.retain(|_, (_, other, ..)| *other != id);
        }
    }

    fn refuse(&mut self, seq: u64) {
        let Some((key, id, kind, offered)) = self.pending.remove(&seq) else { return };
        self.dead.push(seq);
        self.dead.sort_unstable();
        self.dead.drain(..self.dead.len().saturating_sub(Limits::default().dead_letters));
        if kind == Kind::Occur && offered == Offered::Again {
            self.standing.insert(id, (key, false, Vec::new()));
        } else if kind == Kind::Occur
            && let Some(recovery) = self.place(&id, Kind::Recover)
        {
            self.pending.remove(&recovery);
        }
    }
}
