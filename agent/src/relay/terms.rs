//! What is decided upon, and what decisions are made of; [`super::plan`] makes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swansong_fault_model::{Assertion, Subject};

use super::episode::Episode;
use super::pod::Owner;
use super::preflight::Objection;

/// How old a preflight may be when its fault is sent.
const PREFLIGHT_LIFE: Duration = Duration::from_secs(3);
/// How often one is made anew while it objects.
const PREFLIGHT_PACE: Duration = Duration::from_secs(2);

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
    /// Whether a source that runs can say when it is over.
    pub(crate) held: bool,
    /// The recovery of the same episode that waits behind it.
    pub(crate) over: Option<u64>,
    pub(crate) episode: &'a Episode,
}

/// What ClusterD has taken and not yet been told the end of.
#[derive(Debug, Clone)]
pub(crate) struct Stands<'a> {
    pub(crate) id: &'a str,
    /// Whether a source has said in the life of this process that it stands.
    pub(crate) vouched: bool,
    /// Whether a source that runs can say when it is over.
    pub(crate) held: bool,
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
    /// Whether it asks for a dump; what becomes of the others isn't followed.
    pub(crate) dumps: bool,
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
    pub(super) fn pace(&self) -> Duration {
        if self.objections.is_empty() {
            return PREFLIGHT_PACE;
        }
        (self.at.saturating_sub(self.since) / 4).clamp(PREFLIGHT_PACE, Duration::from_mins(1))
    }

    /// How long it counts. What speaks against a fault does until it is looked at anew.
    pub(super) fn life(&self) -> Duration {
        if self.objections.is_empty() { PREFLIGHT_LIFE } else { self.pace() + PREFLIGHT_LIFE }
    }

    /// Whether it clears a fault at `now`.
    pub(super) fn clears(&self, now: Duration) -> bool {
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

impl World<'_> {
    /// Whether the jobs on `subject` have to be looked at, or looked at anew.
    pub(super) fn wants_preflight(&self, subject: Subject) -> bool {
        let preflight = self.preflights.get(&subject);
        preflight.is_none_or(|preflight| self.now.saturating_sub(preflight.at) >= preflight.pace())
    }
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

impl Step {
    /// At the latest then.
    pub(super) fn wake(&mut self, at: Option<Duration>) {
        if let Some(at) = at {
            self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
        }
    }
}
