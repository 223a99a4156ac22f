//! The outcome of the dump of a job after a fault, from ClusterD's status and from what the agents of its nodes see.
//!
//! ascend-operator deletes the PodGroup about a second after the first container of a job has ended, while ranks on other
//! nodes still save. So a missing PodGroup is no outcome, and a fault isn't withdrawn before the ranks have disconnected
//! from MindIO's controller or the time for saving has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest time from ClusterD's acceptance of a fault to the dump order: ClusterD's grace, MindIO's heartbeats, and
/// other jobs before this one.
pub const ORDER_TIMEOUT: Duration = Duration::from_secs(90);

/// The shortest time from the end of a rank to the dump order: MindIO misses its heartbeats (9.0–11.4 s were measured).
pub const EARLIEST_ORDER: Duration = Duration::from_secs(9);

/// ClusterD waits up to fifteen minutes for a dump, and then for what follows.
pub const STATUS_TIMEOUT: Duration = Duration::from_mins(20);

/// What is known of a job after a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation<'a> {
    /// The job's PodGroup; `None` if it was deleted.
    pub group: Option<GroupStatus<'a>>,
    /// The ranks' processors.
    pub processors: Processors,
    /// The checkpoint folder that got its final name since the order, which MindIO gives it when all ranks have saved.
    pub renamed: Option<&'a str>,
    /// The time since ClusterD accepted the fault, or a rank was ended.
    pub waited: Duration,
}

/// What ClusterD writes to a PodGroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupStatus<'a> {
    pub status: Option<&'a str>,
    /// Whether the label `process-recover-enable` is `pause`: ClusterD has handled a fault, and waits for the job to be
    /// scheduled again.
    pub is_paused: bool,
}

/// The connections of ranks to MindIO's controller, of a Pod or of a whole job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processors {
    /// Ranks are connected, so they may be saving.
    Connected,
    /// Ranks were connected at the fault, and no longer are. Of a job: of all its Pods.
    Disconnected,
    /// Nothing is known of them, or not of all.
    NotSeen,
}

/// What was known before the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected<'a> {
    /// `ProcessRecoverStatus` before the fault.
    pub status_before: Option<&'a str>,
    /// How long the job may save.
    pub save_limit: Duration,
}

/// The outcome of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Status(String),
    /// The checkpoint folder that was renamed.
    Renamed(String),
    /// It can't be found out.
    Unknown(Unknown),
}

/// Why the outcome of a dump is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Unknown {
    /// The PodGroup still exists, and ClusterD wrote no status, or the same as for an earlier fault.
    NoStatus,
    /// The PodGroup was deleted before ClusterD wrote a status, and the ranks have disconnected.
    PodGroupDeleted,
    /// The time for saving has passed.
    TimedOut,
}

impl Observation<'_> {
    /// The outcome; `None` while ranks may still be saving, or ClusterD may still write its status.
    pub fn outcome(&self, expected: Expected<'_>) -> Option<Outcome> {
        let may_save = self.waited < ORDER_TIMEOUT + expected.save_limit;
        let is_handled = self.group.is_some_and(|group| group.is_paused);
        let has_ended = match self.processors {
            Processors::Connected => !may_save,
            Processors::Disconnected => is_handled || self.group.is_none() || !may_save,
            Processors::NotSeen => is_handled || !may_save,
        };
        let has_ended = (has_ended || self.renamed.is_some())
            && (self.group.is_none() || is_handled || self.waited >= STATUS_TIMEOUT);
        let status = self.group.and_then(|group| group.status);
        if let Some(status) = status.filter(|status| Some(*status) != expected.status_before)
            && (!is_step(status) || has_ended && self.renamed.is_none())
        {
            return Some(Outcome::Status(status.to_owned()));
        }
        has_ended.then(|| match (self.renamed, self.group) {
            (Some(folder), _) => Outcome::Renamed(folder.to_owned()),
            _ if !may_save && self.processors != Processors::Disconnected => {
                Outcome::Unknown(Unknown::TimedOut)
            }
            (None, Some(_)) => Outcome::Unknown(Unknown::NoStatus),
            (None, None) => Outcome::Unknown(Unknown::PodGroupDeleted),
        })
    }
}

/// Whether ClusterD tries the next strategy after this status (`handleCheckRecoverResult`).
fn is_step(status: &str) -> bool {
    matches!(status, "retry-failed" | "recover-failed")
}

/// The connections of a Pod's ranks, kept from one observation to the next. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConnectionHistory {
    /// Since when the oldest of the established connections is.
    connected_at: Option<u64>,
    /// When the oldest one last ended.
    disconnected_at: Option<u64>,
    /// When each of the established connections was first seen.
    #[serde(skip)]
    established: BTreeMap<u64, u64>,
}

impl ConnectionHistory {
    /// How long connections have to be closed: ranks reconnect within a second when a controller restarts.
    const SETTLE: u64 = 3_000;

    /// Records at `now` which connections are established, by the inodes of their sockets; `None` if that can't be seen.
    pub fn record(&mut self, connections: Option<&BTreeSet<u64>>, now: u64) {
        let Some(connections) = connections else { return };
        let since = |inode: &u64| (*inode, self.established.get(inode).copied().unwrap_or(now));
        self.established = connections.iter().map(since).collect();
        let oldest = self.established.values().min().copied();
        if self.connected_at.is_some() && self.connected_at != oldest {
            self.disconnected_at = Some(now);
        }
        self.connected_at = oldest;
    }

    /// Whether any connection was ever established.
    pub const fn was_connected(&self) -> bool {
        self.connected_at.is_some() || self.disconnected_at.is_some()
    }

    /// The state at `now` with respect to a fault at `since`, after which no dump is ordered before `order`.
    ///
    /// Restarted ranks reconnect a second after the dump, so later connections don't count.
    pub fn processors(&self, since: u64, order: u64, now: u64) -> Processors {
        match (self.connected_at, self.disconnected_at) {
            (Some(at), _) if at <= order => Processors::Connected,
            (_, Some(at)) if now < at + Self::SETTLE => Processors::Connected,
            (_, Some(at)) if at >= since => Processors::Disconnected,
            _ => Processors::NotSeen,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Processors::{Connected, Disconnected, NotSeen};
    use super::*;

    const LIMIT: Duration = Duration::from_mins(30);
    const SOON: Duration = Duration::from_secs(20);
    const LATE: Duration = Duration::from_mins(32);
    const SAVED: &str = "dump-success";

    const fn group(status: Option<&str>, is_paused: bool) -> GroupStatus<'_> {
        GroupStatus { status, is_paused }
    }

    #[test]
    fn outcome_is_clusterds_status_then_a_rename_then_unknown() {
        let (paused, group) = (|status| Some(group(status, true)), |status| Some(group(status, false)));
        let status = |status: &str| Some(Outcome::Status(status.to_owned()));
        let renamed = || Some(Outcome::Renamed("iter_7".to_owned()));
        let unknown = |why| Some(Outcome::Unknown(why));
        for (observed, processors, rename, waited, before, expected) in [
            // ClusterD's status decides, also while ranks are connected.
            (group(Some(SAVED)), Connected, None, SOON, None, status(SAVED)),
            (group(Some("dump-failed")), NotSeen, None, SOON, Some(SAVED), status("dump-failed")),
            (paused(Some(SAVED)), Disconnected, None, SOON, None, status(SAVED)),
            (group(Some(SAVED)), NotSeen, None, SOON, Some("recover-failed"), status(SAVED)),
            // It is that of an earlier fault, or there is none yet.
            (group(Some(SAVED)), Connected, None, SOON, Some(SAVED), None),
            (group(None), Connected, None, SOON, None, None),
            (group(None), Disconnected, None, SOON, None, None),
            (group(None), NotSeen, None, SOON, None, None),
            (group(None), NotSeen, Some("iter_7"), SOON, None, None),
            // A dump follows after other strategies have failed.
            (group(Some("recover-failed")), NotSeen, None, SOON, None, None),
            (paused(Some("recover-failed")), NotSeen, None, SOON, None, status("recover-failed")),
            (group(Some("recover-failed")), NotSeen, None, LATE, None, status("recover-failed")),
            // ClusterD has handled the fault and wrote the same status, or none.
            (paused(None), NotSeen, None, SOON, None, unknown(Unknown::NoStatus)),
            (paused(Some(SAVED)), NotSeen, None, SOON, Some(SAVED), unknown(Unknown::NoStatus)),
            (paused(Some(SAVED)), Disconnected, Some("iter_7"), SOON, Some(SAVED), renamed()),
            (paused(Some(SAVED)), Connected, None, SOON, Some(SAVED), None),
            (paused(Some("recover-failed")), Disconnected, Some("iter_7"), SOON, None, renamed()),
            // The PodGroup is deleted while ranks save.
            (None, Connected, None, SOON, None, None),
            (None, Connected, Some("iter_7"), SOON, None, renamed()),
            (group(None), Connected, Some("iter_7"), SOON, None, None),
            (None, NotSeen, None, SOON, None, None),
            (None, NotSeen, Some("iter_7"), SOON, None, renamed()),
            (None, Disconnected, Some("iter_7"), SOON, None, renamed()),
            (None, Disconnected, None, SOON, None, unknown(Unknown::PodGroupDeleted)),
            // The time for saving has passed.
            (None, Connected, None, LATE, None, unknown(Unknown::TimedOut)),
            (None, NotSeen, None, LATE, None, unknown(Unknown::TimedOut)),
            (group(None), Connected, None, LATE, None, unknown(Unknown::TimedOut)),
            (group(None), Disconnected, None, LATE, None, unknown(Unknown::NoStatus)),
            (group(None), Connected, Some("iter_7"), LATE, None, renamed()),
        ] {
            let observation = Observation { group: observed, processors, renamed: rename, waited };
            let outcome = observation.outcome(Expected { status_before: before, save_limit: LIMIT });
            assert_eq!(outcome, expected, "{observation:?}, {before:?} before");
        }
    }

    #[test]
    fn short_save_limit_leaves_clusterd_its_time_for_the_status() {
        let expected = Expected { status_before: None, save_limit: Duration::from_mins(3) };
        let at = |group, waited| Observation { group, processors: NotSeen, renamed: None, waited };
        let running = Some(group(None, false));
        assert_eq!(at(running, Duration::from_mins(10)).outcome(expected), None);
        assert!(at(running, STATUS_TIMEOUT).outcome(expected).is_some());
        assert!(at(None, Duration::from_mins(5)).outcome(expected).is_some());
    }

    #[test]
    fn connections_from_before_the_order_count_and_settle() {
        let set = |inodes: &[u64]| inodes.iter().copied().collect::<BTreeSet<u64>>();
        let mut history = ConnectionHistory::default();
        history.record(Some(&set(&[])), 1_000);
        assert_eq!(history.processors(0, 9_000, 1_000), NotSeen);
        history.record(Some(&set(&[1, 2, 3])), 2_000);
        history.record(None, 3_000);
        assert_eq!(history.processors(10_000, 19_000, 3_000), Connected);
        // A rank ends and one connects during training.
        history.record(Some(&set(&[2, 3, 4])), 4_000);
        assert_eq!(history.processors(10_000, 19_000, 8_000), Connected);
        let before = history.clone();
        for reconnected in [&[][..], &[5, 6]] {
            history = before.clone();
            history.record(Some(&set(reconnected)), 30_000);
            assert_eq!(history.processors(10_000, 19_000, 32_000), Connected);
            assert_eq!(history.processors(10_000, 19_000, 33_000), Disconnected, "{reconnected:?}");
            history.record(Some(&set(reconnected)), 40_000);
            assert_eq!(history.processors(10_000, 19_000, 40_000), Disconnected, "{reconnected:?}");
        }
        // The next fault hits the ranks that have reconnected.
        assert_eq!(history.processors(50_000, 59_000, 60_000), Connected);
        history.record(Some(&set(&[])), 60_000);
        assert_eq!(history.processors(70_000, 79_000, 80_000), NotSeen, "it ended before the fault");
    }

    #[test]
    fn first_view_of_ranks_that_have_reconnected_proves_nothing() {
        let mut history = ConnectionHistory::default();
        history.record(Some(&BTreeSet::from([1])), 30_000);
        assert_eq!(history.processors(10_000, 19_000, 30_000), NotSeen);
    }

    fn any_group() -> impl Strategy<Value = GroupStatus<'static>> {
        let status = prop::option::of(prop::sample::select(vec![SAVED, "dump-failed", "recover-failed"]));
        (status, any::<bool>()).prop_map(|(status, is_paused)| group(status, is_paused))
    }

    proptest! {
        /// An agent may miss any observation and restart at any time, so each one alone has to be safe.
        #[test]
        fn ranks_that_may_save_have_no_outcome_but_a_seen_one(
            group in prop::option::of(any_group()),
            processors in prop::sample::select(vec![Connected, Disconnected, NotSeen]),
            renamed in prop::option::of(Just("iter_7")),
            waited in (0..3_000u64).prop_map(Duration::from_secs),
            before in prop::option::of(Just(SAVED)),
            limit in (30..1800u64).prop_map(Duration::from_secs),
        ) {
            let observation = Observation { group, processors, renamed, waited };
            let outcome = observation.outcome(Expected { status_before: before, save_limit: limit });
            let may_save = waited < ORDER_TIMEOUT + limit;
            let is_status = matches!(outcome, Some(Outcome::Status(_)));
            if processors == Connected && may_save {
                prop_assert!(!matches!(outcome, Some(Outcome::Unknown(_))), "{:?}", outcome);
                prop_assert!(outcome.is_none() || is_status || renamed.is_some(), "{:?}", outcome);
            }
            if group.is_none() && processors != Disconnected && may_save {
                prop_assert!(!matches!(outcome, Some(Outcome::Unknown(_))), "the PodGroup alone is no outcome");
            }
            if let Some(Outcome::Status(status)) = &outcome {
                prop_assert_ne!(Some(status.as_str()), before);
            }
            if !may_save && waited >= STATUS_TIMEOUT {
                prop_assert!(outcome.is_some(), "every fault is withdrawn at some time");
            }
        }
    }
}
