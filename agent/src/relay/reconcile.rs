//! What ClusterD has, compared with what it should have.
//!
//! An answer of 0 proves nothing: ClusterD says it too for what it drops. What it has stands in the ConfigMap
//! `statistic-fault-info`. So what stands here and isn't there is sent again, and what is there and isn't known here is
//! taken back: by an agent that lost its outbox, or by one whose recovery ClusterD lost.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use swansong_fault_model::Assertion;

use super::episode::Episode;
use super::plan::{CONFIRM, Relay, Taken, VOUCH, again};
use super::terms::{Head, Origin, Parcel, Stands, Verdict};

/// Between two looks while something isn't confirmed.
const LOOK_SOON: Duration = Duration::from_millis(1500);
/// Between two looks while something stands.
const LOOK_LATE: Duration = Duration::from_mins(5);
/// ClusterD keeps a recovery back until the occurrence is five seconds old, in its memory only.
const CERTAIN: Duration = Duration::from_secs(6);
/// After so many in vain it is said.
const ATTEMPTS: u32 = 3;

/// What ClusterD has of this node's faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum View {
    /// These.
    Has {
        /// Their ids.
        ids: BTreeSet<String>,
        /// Whether these are all.
        complete: bool,
    },
    /// It can't be known: the ConfigMap may not be read.
    Forbidden,
}

#[derive(Debug)]
pub(super) struct Reconciled {
    /// Whether what ClusterD has can be read.
    pub(super) confirmable: bool,
    /// Since when each standing fault is to be seen at ClusterD, and how often it was sent again.
    since: HashMap<String, (Duration, u32)>,
    lost: BTreeSet<String>,
    recalls: BTreeSet<String>,
    /// When what was sent by itself may be sent again, and how often it was.
    tried: HashMap<String, (Duration, u32)>,
    orphans: BTreeSet<String>,
    looked: Option<Duration>,
    unconfirmed: bool,
}

impl Default for Reconciled {
    fn default() -> Self {
        Self {
            confirmable: true,
            since: HashMap::new(),
            lost: BTreeSet::new(),
            recalls: BTreeSet::new(),
            tried: HashMap::new(),
            orphans: BTreeSet::new(),
            looked: None,
            unconfirmed: true,
        }
    }
}

impl Reconciled {
    pub(super) fn keep(&mut self, stands: &[Stands<'_>], now: Duration, recall: bool) {
        let ids: HashSet<&str> = stands.iter().map(|stands| stands.id).collect();
        self.since.retain(|id, _| ids.contains(id.as_str()));
        self.lost.retain(|id| ids.contains(id.as_str()));
        self.recalls.retain(|id| ids.contains(id.as_str()));
        for stands in stands {
            self.since.entry(stands.id.to_owned()).or_insert((now, 0));
            // What it was for is done: all jobs that were to dump by it have ended.
            let mut dumping = stands.note.jobs.iter().filter(|job| job.dumps).peekable();
            let done = dumping.peek().is_some() && dumping.all(|job| job.outcome.is_some());
            if recall && done && !stands.note.recalled {
                self.recalls.insert(stands.id.to_owned());
            }
        }
        self.tried.retain(|id, _| ids.contains(id.as_str()) || self.orphans.contains(id));
    }

    pub(super) fn parcels(&self, stands: &[Stands<'_>], heads: &[Head<'_>], now: Duration) -> Vec<Parcel> {
        let parcel = |id: &str, episode: &Episode, origin, assertion| Parcel {
            origin,
            id: id.to_owned(),
            assertion,
            episode: episode.clone(),
        };
        let mut parcels = Vec::new();
        let ends = ids(heads);
        for stands in stands {
            // Its end is on the way, or it was sent not long ago.
            if ends.contains(stands.id) || !self.may_go(stands.id, now) {
                continue;
            }
            if self.recalls.contains(stands.id) {
                parcels.push(parcel(stands.id, stands.episode, Origin::Recalled, Assertion::Recover));
            } else if self.lost.contains(stands.id) {
                parcels.push(parcel(stands.id, stands.episode, Origin::Lost, Assertion::Occur));
            }
        }
        let orphan = |id: &String| parcel(id, &Episode::of_id(id), Origin::Orphan, Assertion::Recover);
        parcels.extend(self.orphans.iter().filter(|id| self.may_go(id, now)).map(orphan));
        parcels
    }

    pub(super) const fn unconfirmed(&mut self) {
        self.unconfirmed = true;
    }

    fn may_go(&self, id: &str, now: Duration) -> bool {
        self.tried.get(id).is_none_or(|&(again, _)| now >= again)
    }

    /// It isn't to be sent before `until`.
    pub(super) fn put_off(&mut self, id: &str, until: Duration) {
        self.tried.entry(id.to_owned()).or_insert((until, 0)).0 = until;
    }

    /// It was sent; ever more time passes until it is again.
    pub(super) fn sent_again(&mut self, id: &str, now: Duration) {
        let times = self.tried.get(id).map_or(0, |&(_, times)| times);
        self.tried.insert(id.to_owned(), (again(now, times), times + 1));
        self.lost.remove(id);
        self.recalls.remove(id);
        if let Some((since, times)) = self.since.get_mut(id) {
            *since = now;
            *times += 1;
        }
        self.unconfirmed = true;
    }
}

fn ids<'a>(heads: &[Head<'a>]) -> HashSet<&'a str> {
    heads.iter().map(|head| head.id).collect()
}

impl Relay {
    /// When ClusterD's ConfigMap is to be looked at, if at all.
    pub(crate) fn look_at(&self, anything: bool) -> Option<Duration> {
        let state = &self.reconciled;
        match state.looked {
            // At the start: what did the process before leave there?
            None => Some(Duration::ZERO),
            Some(looked) if state.unconfirmed => Some(looked + LOOK_SOON),
            Some(looked) if anything || !state.orphans.is_empty() => Some(looked + LOOK_LATE),
            Some(_) => None,
        }
    }

    /// Faults that were sent again and again and that ClusterD doesn't show.
    pub(crate) fn unheard(&self) -> impl Iterator<Item = &str> {
        let since = self.reconciled.since.iter();
        since.filter(|(_, (_, times))| *times >= ATTEMPTS).map(|(id, _)| id.as_str())
    }

    /// Compares.
    pub(crate) fn confirm(
        &mut self,
        view: &View,
        heads: &[Head<'_>],
        stands: &[Stands<'_>],
        now: Duration,
    ) -> Vec<Verdict> {
        let state = &mut self.reconciled;
        state.looked = Some(now);
        let (has, complete) = match view {
            View::Has { ids, complete } => (ids, *complete),
            View::Forbidden => (&BTreeSet::new(), false),
        };
        state.confirmable = complete;
        let mut verdicts = Vec::new();
        let mut open = false;
        for head in heads.iter().filter(|head| head.assertion == Assertion::Recover) {
            if let Some(&Taken { at, refused, times, .. }) = self.taken.get(&head.seq) {
                if !complete {
                    // Nothing more can be known of it, unless it was refused.
                    if !refused {
                        verdicts.push(Verdict::Accept(head.seq));
                    }
                } else if has.contains(head.id) {
                    // What ClusterD keeps showing is looked at as rarely as it is sent.
                    open |= times <= ATTEMPTS;
                } else if now >= at.saturating_add(CERTAIN) {
                    verdicts.push(Verdict::Accept(head.seq));
                } else {
                    open = true;
                }
            }
        }
        let waiting = ids(heads);
        for stands in stands.iter().filter(|stands| !waiting.contains(stands.id)) {
            match (has.contains(stands.id), stands.note.recalled) {
                (true, true) => drop(state.recalls.insert(stands.id.to_owned())),
                (true, false) => {
                    state.lost.remove(stands.id);
                    if let Some((_, times)) = state.since.get_mut(stands.id) {
                        *times = 0;
                    }
                    if !stands.note.confirmed {
                        verdicts.push(Verdict::Confirmed(stands.id.to_owned()));
                    }
                }
                (false, false) if complete => {
                    let (since, times) = state.since.get(stands.id).copied().unwrap_or((now, 0));
                    // What was sent in vain is sent ever more rarely: ClusterD takes one message a second from all.
                    // And what an earlier process knew may be over by now.
                    let first = if stands.vouched { CONFIRM } else { VOUCH };
                    let wait = if times < ATTEMPTS { first } else { LOOK_LATE };
                    if stands.held && now.saturating_sub(since) >= wait {
                        state.lost.insert(stands.id.to_owned());
                    }
                    // What is lost and waits to be sent needn't be looked for.
                    open |= times < ATTEMPTS && !state.lost.contains(stands.id);
                }
                (false, _) => {}
            }
        }
        let standing: HashSet<&str> = stands.iter().map(|stands| stands.id).collect();
        let known = |id: &str| waiting.contains(id) || standing.contains(id);
        state.orphans = has.iter().filter(|id| !known(id)).cloned().collect();
        state.unconfirmed = open;
        verdicts
    }
}
