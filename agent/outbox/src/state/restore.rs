//! A state from records, and two states made one.

use std::collections::BTreeSet;

use super::State;
use crate::entry::{DeadLetter, Limits, Pending, Standing};
use crate::record::RecordKey;

/// Beyond this, places are given anew. A million entries a second get there in 146,000 years, and no damage may.
const LAST: u64 = 1 << 62;

/// What was read from a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Records {
    pub(crate) next: Option<u64>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) standing: Vec<Standing>,
    pub(crate) dead: Vec<DeadLetter>,
}

impl Records {
    /// Gives places anew, from 1 and in the same order. The next one.
    fn renumber(&mut self) -> u64 {
        let pending = self.pending.iter_mut().map(|pending| &mut pending.seq);
        let mut places: Vec<&mut u64> =
            pending.chain(self.dead.iter_mut().map(|letter| &mut letter.seq)).collect();
        places.sort_unstable();
        let mut next = 1;
        for place in places {
            *place = next;
            next += 1;
        }
        next
    }
}

impl State {
    /// The state that `records` tell of. Limits bind what is appended later; nothing is dropped for them here.
    pub(crate) fn restore(mut records: Records, limits: Limits) -> Self {
        let places = records.pending.iter().map(|pending| pending.seq);
        let dead = records.dead.iter().map(|letter| letter.seq);
        let last = places.chain(dead).max().unwrap_or(0);
        let mut next = records.next.unwrap_or(1).max(last.saturating_add(1));
        if next > LAST {
            next = records.renumber();
        }
        let mut state = Self::new(limits, next);
        for pending in records.pending {
            state.insert(pending);
        }
        for standing in records.standing {
            state.put_standing(standing);
        }
        for letter in records.dead {
            state.bury(letter);
        }
        state.touched.clear();
        state
    }

    /// Takes in what a file holds that could not be read before entries came. It is older, so it goes before
    /// them; where both know the same, what is here stays.
    pub(crate) fn merge(&mut self, older: Self) {
        let waiting: Vec<Pending> = older
            .queue
            .iter()
            .filter(|pending| self.queue.episode(&pending.entry.id).of(pending.entry.kind).is_none())
            .cloned()
            .collect();
        let count = waiting.len() as u64;
        let first = self.queue.iter().next().map_or(self.next, |pending| pending.seq);
        let taken: BTreeSet<u64> = self.dead.keys().copied().collect();
        // Places are free below those given since the start, unless the file is another one than it was then.
        let begin = if first > count && taken.range(first - count..first).next().is_none() {
            first - count
        } else {
            let begin = self.next;
            self.next += count;
            self.touched.insert(RecordKey::Next);
            begin
        };
        for (seq, pending) in (begin..).zip(waiting) {
            self.insert(Pending { seq, ..pending });
        }
        for standing in older.standing.into_values() {
            if !self.standing.contains_key(&standing.id) {
                self.put_standing(standing);
            }
        }
        for letter in older.dead.into_values() {
            if !self.dead.contains_key(&letter.seq) && self.queue.get(letter.seq).is_none() {
                self.bury(letter);
            }
        }
    }
}
