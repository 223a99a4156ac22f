//! What is sent, and when: the decisions of the relay, without clock, network or disk.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use swansong_clusterd::SendError;
use swansong_fault_model::Assertion;

use super::pace::{Pace, Trouble};
use super::reconcile::Reconciled;
use super::settings::Settings;
use super::terms::{Head, Hold, Origin, Parcel, Step, Verdict, World};

/// The most faults that ClusterD takes in one message (`checker.go`).
const BATCH: usize = 100;

/// How long before a fault is due its preflight is made.
const PREFLIGHT_LEAD: Duration = Duration::from_secs(1);

/// How long is waited for a source to say again what an earlier process heard of it.
pub(super) const VOUCH: Duration = Duration::from_mins(1);

/// ClusterD shows a fault about a second after it took it, and holds a recovery back until five seconds after the
/// occurrence.
pub(super) const CONFIRM: Duration = Duration::from_secs(8);

/// When what was sent `times` times before may be sent again: twice as late each time, four minutes at most.
pub(super) fn again(now: Duration, times: u32) -> Duration {
    now + CONFIRM.saturating_mul(1 << times.min(5))
}

/// After so many recoveries in vain the next fault of the same key isn't held up any more.
const GIVE_UP: u32 = 6;

/// A recovery that was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// When it was answered.
    pub(super) at: Duration,
    /// Whether ClusterD refused it (409): then it may still have the fault.
    pub(super) refused: bool,
    /// When it is sent again if ClusterD still shows the fault: ever more rarely.
    again: Duration,
    /// How often.
    pub(super) times: u32,
}

/// What the relay remembers within a process.
#[derive(Debug)]
pub(crate) struct Relay {
    settings: Settings,
    pub(super) pace: Pace,
    /// Since when each occurrence has been waiting. Not by the fault's own time: clocks jump.
    seen: HashMap<u64, Duration>,
    /// Recoveries that were taken, by their place.
    pub(super) taken: HashMap<u64, Taken>,
    pub(super) reconciled: Reconciled,
    /// Ids of a batch that was refused as a whole: they go alone.
    pub(super) suspects: BTreeSet<String>,
}

impl Relay {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            pace: Pace::default(),
            seen: HashMap::new(),
            taken: HashMap::new(),
            reconciled: Reconciled::default(),
            suspects: BTreeSet::new(),
        }
    }

    /// What keeps faults from ClusterD.
    pub(crate) const fn trouble(&self) -> Option<&Trouble> {
        self.pace.trouble()
    }

    /// Decides what to do now.
    pub(crate) fn step(&mut self, world: &World<'_>) -> Step {
        let mut step = Step { withdraw: world.passed.clone(), ..Step::default() };
        let places: HashSet<u64> = world.heads.iter().map(|head| head.seq).collect();
        self.seen.retain(|seq, _| places.contains(seq));
        self.taken.retain(|seq, _| places.contains(seq));
        self.reconciled.keep(&world.stands, world.now, self.settings.recall_after_dump);
        let mut due = Vec::new();
        for head in &world.heads {
            match self.judge(head, world, &mut step) {
                Judged::Done => {}
                Judged::Due => due.push(Parcel {
                    origin: Origin::Pending(head.seq),
                    id: head.id.to_owned(),
                    assertion: head.assertion,
                    episode: head.episode.clone(),
                }),
                Judged::Held(hold, until) => {
                    step.holds.insert(head.seq, hold);
                    step.wake(until);
                }
            }
        }
        for parcel in self.reconciled.parcels(&world.stands, &world.heads, world.now) {
            // A kill that is sent again may hit another job than the first time.
            let kills = parcel.origin == Origin::Lost && parcel.episode.kills();
            if kills && (world.carried)(&parcel.episode) {
                let settle = self.settings.settle(parcel.episode.class());
                self.reconciled.put_off(&parcel.id, world.now + settle);
                continue;
            }
            let subject = parcel.episode.subject;
            let cleared = world.preflights.get(&subject).is_some_and(|preflight| preflight.clears(world.now));
            if !kills || cleared {
                due.push(parcel);
            } else if world.wants_preflight(subject) {
                step.preflight.insert(subject);
            }
        }
        if !due.is_empty() {
            self.load(due, world, &mut step);
        }
        step
    }

    /// Puts what is due into a batch, unless it isn't time.
    fn load(&self, mut due: Vec<Parcel>, world: &World<'_>, step: &mut Step) {
        if world.busy || world.now < self.pace.next() {
            for parcel in &due {
                if let Origin::Pending(seq) = parcel.origin {
                    step.holds.insert(seq, Hold::Pacing);
                }
            }
            if !world.busy {
                step.wake(Some(self.pace.next()));
            }
            return;
        }
        let suspect = due.iter().position(|parcel| self.suspects.contains(&parcel.id));
        if let Some(place) = suspect {
            due = vec![due.swap_remove(place)];
        }
        due.truncate(BATCH);
        step.send = due;
    }

    fn judge(&mut self, head: &Head<'_>, world: &World<'_>, step: &mut Step) -> Judged {
        match head.assertion {
            Assertion::Once => Judged::Due,
            Assertion::Recover => match self.taken.get(&head.seq) {
                Some(&Taken { again, .. }) if world.now < again => {
                    Judged::Held(Hold::Confirming, Some(again))
                }
                _ => Judged::Due,
            },
            Assertion::Occur => match head.over {
                Some(_) if head.offered => {
                    step.skip.push(head.seq);
                    Judged::Done
                }
                Some(over) => {
                    step.withdraw.extend([head.seq, over]);
                    Judged::Done
                }
                None => self.occurrence(head, world, step),
            },
        }
    }

    fn occurrence(&mut self, head: &Head<'_>, world: &World<'_>, step: &mut Step) -> Judged {
        if !head.held {
            return Judged::Held(Hold::Settling, None);
        }
        if (world.carried)(head.episode) {
            // When the device plugin doesn't say so any more, it may be over, and our source not have noticed.
            self.seen.insert(head.seq, world.now);
            return Judged::Held(Hold::Carried, None);
        }
        let first = *self.seen.entry(head.seq).or_insert(world.now);
        let mut settled = first + self.settings.settle(head.episode.class());
        if !head.vouched {
            settled = settled.max(first + VOUCH);
        }
        let kills = head.episode.kills();
        let preflight = world.preflights.get(&head.episode.subject);
        let lead = settled.saturating_sub(PREFLIGHT_LEAD);
        if kills && world.now >= lead && world.wants_preflight(head.episode.subject) {
            step.preflight.insert(head.episode.subject);
        }
        if world.now < settled {
            let next = if kills && world.now < lead { lead } else { settled };
            return Judged::Held(Hold::Settling, Some(next));
        }
        if !kills {
            return Judged::Due;
        }
        match preflight {
            _ if !world.classified => Judged::Held(Hold::Preflight, None),
            Some(preflight) if world.now.saturating_sub(preflight.at) <= preflight.life() => {
                if preflight.objections.is_empty() {
                    Judged::Due
                } else {
                    let next = preflight.at + preflight.pace();
                    // Not in the past: the next look is under way then.
                    Judged::Held(Hold::Objected, (next > world.now).then_some(next))
                }
            }
            _ => Judged::Held(Hold::Preflight, None),
        }
    }

    /// A recovery that ClusterD refuses: its place in the outbox.
    pub(crate) fn refused_recovery(&self) -> Option<u64> {
        self.taken.iter().find(|(_, taken)| taken.refused).map(|(seq, _)| *seq)
    }

    /// What an answer to a batch means. `chance` is between 0 and 1.
    pub(crate) fn answered(
        &mut self,
        batch: &[Parcel],
        answer: &Result<(), SendError>,
        now: Duration,
        chance: f64,
    ) -> Vec<Verdict> {
        match answer {
            Ok(()) => {
                self.pace.answered(now);
                batch.iter().filter_map(|parcel| self.taken(parcel, now)).collect()
            }
            // Only that it was understood counts here; who of many was meant is found out one by one.
            Err(error @ (SendError::Invalid(_) | SendError::InvalidBatch(_))) => {
                let why = &error.to_string();
                self.pace.answered(now);
                if let [parcel] = batch {
                    self.suspects.remove(&parcel.id);
                    self.refused(parcel, why, now)
                } else {
                    self.suspects.extend(batch.iter().map(|parcel| parcel.id.clone()));
                    Vec::new()
                }
            }
            Err(error) => {
                self.pace.failed(error, now, chance);
                Vec::new()
            }
        }
    }

    fn taken(&mut self, parcel: &Parcel, now: Duration) -> Option<Verdict> {
        self.suspects.remove(&parcel.id);
        match parcel.origin {
            Origin::Pending(seq) if parcel.assertion == Assertion::Recover && self.reconciled.confirmable => {
                // Taken isn't done: it ends when ClusterD doesn't show the fault any more.
                let times = self.taken.get(&seq).map_or(0, |taken| taken.times);
                if times >= GIVE_UP {
                    // ClusterD shows what it was told is over, or can't be read: its fault must not hold up the next one. What
                    // is still there is taken back as one that nobody knows.
                    self.reconciled.unconfirmed();
                    return Some(Verdict::Accept(seq));
                }
                let taken = Taken { at: now, refused: false, again: again(now, times), times: times + 1 };
                self.taken.insert(seq, taken);
                self.reconciled.unconfirmed();
                None
            }
            Origin::Pending(seq) => {
                self.reconciled.unconfirmed();
                Some(Verdict::Accept(seq))
            }
            Origin::Lost | Origin::Orphan => {
                self.reconciled.sent_again(&parcel.id, now);
                None
            }
            Origin::Recalled => {
                self.reconciled.sent_again(&parcel.id, now);
                Some(Verdict::Recalled(parcel.id.clone()))
            }
        }
    }

    /// It can't be taken as it is.
    pub(crate) fn refused(&mut self, parcel: &Parcel, why: &str, now: Duration) -> Vec<Verdict> {
        match parcel.origin {
            Origin::Pending(seq) if parcel.assertion == Assertion::Recover => {
                // The administrator's file may lack our codes for a while; what stands has to end all the same.
                let times = self.taken.get(&seq).map_or(0, |taken| taken.times);
                let taken = Taken { at: now, refused: true, again: again(now, times), times: times + 1 };
                self.taken.insert(seq, taken);
                self.reconciled.unconfirmed();
                Vec::new()
            }
            Origin::Pending(seq) => vec![Verdict::Refuse(seq, why.to_owned())],
            Origin::Orphan | Origin::Lost | Origin::Recalled => {
                self.reconciled.sent_again(&parcel.id, now);
                Vec::new()
            }
        }
    }
}

enum Judged {
    /// Nothing more is to be done about it.
    Done,
    Due,
    Held(Hold, Option<Duration>),
}
