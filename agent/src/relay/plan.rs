//! What is sent, and when: the decisions of the relay, without clock, network or disk.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swansong_clusterd::SendError;
use swansong_fault::{Assertion, Subject};

use super::episode::Episode;
use super::pace::{Pace, Trouble};
use super::pod::Owner;
use super::preflight::Objection;
use super::reconcile::Reconciled;
use super::settings::Settings;

/// The most faults that ClusterD takes in one message (`checker.go`).
const BATCH: usize = 100;

/// How old a preflight may be when its fault is sent.
const PREFLIGHT_LIFE: Duration = Duration::from_secs(3);
/// How long before a fault is due its preflight is made.
const PREFLIGHT_LEAD: Duration = Duration::from_secs(1);
/// How often one is made anew while it objects.
const PREFLIGHT_PACE: Duration = Duration::from_secs(2);

/// How long is waited for a source to say again what an earlier process heard of it.
const VOUCH: Duration = Duration::from_mins(1);

/// ClusterD shows a fault about a second after it took it, and holds a recovery back until five seconds after the
/// occurrence.
pub(super) const CONFIRM: Duration = Duration::from_secs(8);

/// What is sent again and again waits twice as long each time, up to four minutes.
const LONGEST_DOUBLING: u32 = 5;

/// After so many recoveries in vain the next fault of the same key isn't held up any more.
const GIVE_UP: u32 = 6;

/// What waits first in its key, as the outbox has it.
#[derive(Debug, Clone)]
pub(crate) struct Head<'a> {
    pub(crate) seq: u64,
    pub(crate) id: &'a str,
    pub(crate) assertion: Assertion,
    /// Whether ClusterD may have it already.
    pub(crate) offered: bool,
    /// Whether a source has said in the life of this process that it stands.
    pub(crate) vouched: bool,
    /// The recovery of the same episode that waits behind it.
    pub(crate) over: Option<u64>,
    pub(crate) episode: &'a Episode,
}

/// What ClusterD has taken and not yet been told the end of.
#[derive(Debug, Clone)]
pub(crate) struct Stands<'a> {
    pub(crate) id: &'a str,
    pub(crate) episode: &'a Episode,
    pub(crate) note: &'a Note,
}

/// What is remembered of a standing fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Note {
    /// ClusterD has shown it.
    pub(crate) confirmed: bool,
    /// It was taken back though it stands, since it has done what it was for.
    pub(crate) recalled: bool,
    /// The jobs that it hit.
    pub(crate) jobs: Vec<JobNote>,
}

/// A job that a fault hit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct JobNote {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) pod_uid: String,
    pub(crate) container: String,
    /// Name of the PodGroup.
    pub(crate) group: String,
    /// The owner of the pod.
    pub(crate) job: Owner,
    /// What `ProcessRecoverStatus` said before.
    pub(crate) before: Option<String>,
    /// What became of it.
    pub(crate) outcome: Option<String>,
    /// The global ranks that are reported lost by the direct way, where the pod asks for that.
    pub(crate) fast_ranks: Vec<u32>,
}

/// What a look at the jobs on a subject has shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preflight {
    pub(crate) at: Duration,
    /// Since when there is something against it.
    pub(crate) since: Duration,
    /// Why ranks would end and nothing be saved.
    pub(crate) objections: Vec<Objection>,
    pub(crate) jobs: Vec<JobNote>,
}

impl Preflight {
    /// How often it is made anew: what has long been missing is looked for more rarely, down to once a minute.
    fn pace(&self) -> Duration {
        if self.objections.is_empty() {
            return PREFLIGHT_PACE;
        }
        (self.at.saturating_sub(self.since) / 4).clamp(PREFLIGHT_PACE, Duration::from_mins(1))
    }

    /// How long it counts. What speaks against a fault does until it is looked at anew.
    fn life(&self) -> Duration {
        if self.objections.is_empty() { PREFLIGHT_LIFE } else { self.pace() + PREFLIGHT_LIFE }
    }

    /// Whether it clears a fault at `now`.
    fn clears(&self, now: Duration) -> bool {
        self.objections.is_empty() && now.saturating_sub(self.at) <= PREFLIGHT_LIFE
    }
}

/// What is known when a step is taken.
pub(crate) struct World<'a> {
    /// Since the process began, by a clock that never goes back.
    pub(crate) now: Duration,
    pub(crate) heads: Vec<Head<'a>>,
    /// Episodes behind those that came and went without being sent: each an occurrence and its end.
    pub(crate) passed: Vec<u64>,
    pub(crate) stands: Vec<Stands<'a>>,
    /// Whether the device plugin's fresh ConfigMap carries it, so that ClusterD knows it anyway.
    pub(crate) carried: &'a dyn Fn(&Episode) -> bool,
    pub(crate) preflights: &'a BTreeMap<Subject, Preflight>,
    /// Whether the cluster was asked how faults are classified: before that one may seem graver than it is.
    pub(crate) classified: bool,
    /// Whether a batch is under way.
    pub(crate) busy: bool,
}

/// Why something waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// It has to stand a while.
    Settling,
    /// The device plugin has told it.
    Carried,
    /// The jobs are being looked at.
    Preflight,
    /// The jobs wouldn't save anything.
    Objected,
    /// ClusterD isn't to be asked yet.
    Pacing,
    /// It was taken, and ClusterD doesn't show it yet.
    Confirming,
}

impl Hold {
    pub(crate) const ALL: [Self; 6] =
        [Self::Settling, Self::Carried, Self::Preflight, Self::Objected, Self::Pacing, Self::Confirming];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Settling => "settling",
            Self::Carried => "carried",
            Self::Preflight => "preflight",
            Self::Objected => "objected",
            Self::Pacing => "pacing",
            Self::Confirming => "confirming",
        }
    }
}

/// Something that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub(crate) origin: Origin,
    pub(crate) id: String,
    pub(crate) assertion: Assertion,
    pub(crate) episode: Episode,
}

impl Parcel {
    /// Its place in the outbox, if it waits there.
    pub(crate) const fn place(&self) -> Option<u64> {
        match self.origin {
            Origin::Pending(seq) => Some(seq),
            Origin::Lost | Origin::Recalled | Origin::Orphan => None,
        }
    }
}

/// Why it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It waits in the outbox.
    Pending(u64),
    /// It was taken, and ClusterD doesn't have it any more.
    Lost,
    /// It has done what it was for.
    Recalled,
    /// ClusterD has it, and nobody here knows of it.
    Orphan,
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// These never went out and never will: occurrence and end.
    pub(crate) withdraw: Vec<u64>,
    /// These may have gone out and are over: only their end is sent.
    pub(crate) skip: Vec<u64>,
    pub(crate) send: Vec<Parcel>,
    /// The jobs on these are to be looked at.
    pub(crate) preflight: BTreeSet<Subject>,
    /// What waits, and why.
    pub(crate) holds: BTreeMap<u64, Hold>,
    /// When something is due without anything new.
    pub(crate) wake: Option<Duration>,
}

/// What an answer means for the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was taken.
    Accept(u64),
    /// It can't be taken as it is.
    Refuse(u64, String),
    /// ClusterD shows it.
    Confirmed(String),
    /// It was taken back.
    Recalled(String),
}

/// A recovery that was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// When.
    pub(super) at: Duration,
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
            let subject = parcel.episode.subject;
            let cleared = world.preflights.get(&subject).is_some_and(|preflight| preflight.clears(world.now));
            if !kills || (cleared && !(world.carried)(&parcel.episode)) {
                due.push(parcel);
            } else if world
                .preflights
                .get(&subject)
                .is_none_or(|preflight| world.now.saturating_sub(preflight.at) >= preflight.pace())
            {
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
        let first = *self.seen.entry(head.seq).or_insert(world.now);
        let mut settled = first + self.settings.settle(head.episode.class());
        if !head.vouched {
            settled = settled.max(first + VOUCH);
        }
        let kills = head.episode.kills();
        let preflight = world.preflights.get(&head.episode.subject);
        let old =
            preflight.is_none_or(|preflight| world.now.saturating_sub(preflight.at) >= preflight.pace());
        let lead = settled.saturating_sub(PREFLIGHT_LEAD);
        if kills && old && world.now >= lead {
            step.preflight.insert(head.episode.subject);
        }
        if world.now < settled {
            let next = if kills && world.now < lead { lead } else { settled };
            return Judged::Held(Hold::Settling, Some(next));
        }
        if (world.carried)(head.episode) {
            return Judged::Held(Hold::Carried, None);
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
                    Judged::Held(Hold::Objected, Some(preflight.at + preflight.pace()))
                }
            }
            _ => Judged::Held(Hold::Preflight, None),
        }
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
            Err(error @ (SendError::Invalid(_) | SendError::NotSendable(_))) => {
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
                let again = now + CONFIRM.saturating_mul(1 << times.min(LONGEST_DOUBLING));
                self.taken.insert(seq, Taken { at: now, again, times: times + 1 });
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
                let again = now + CONFIRM.saturating_mul(1 << times.min(LONGEST_DOUBLING));
                self.taken.insert(seq, Taken { at: Duration::MAX, again, times: times + 1 });
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

impl Step {
    fn wake(&mut self, at: Option<Duration>) {
        if let Some(at) = at {
            self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
        }
    }
}
