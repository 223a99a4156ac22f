//! What the agent sees of the processes of Pods, which another part of it inspects.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use swansong_fault_model::outcome::{ConnectionHistory, Processors};
use swansong_fault_model::rank_process::NoRankEnded;

use crate::pod::NpuPod;

/// The clocks of two nodes may differ by this much, in milliseconds.
const SKEW: u64 = 10_000;

/// Ends processes of Pods.
pub trait Processes: Debug + Send + Sync {
    /// Ends the rank of `pod` on the device `npu`, and returns its process id. It blocks for the time of an inspection.
    ///
    /// # Errors
    ///
    /// When it isn't certain which process that is, or nothing protects the other ranks.
    fn end_rank(&self, pod: &NpuPod, npu: u32) -> Result<i32, NoRankEnded>;
}

/// What is seen of the dump of a Pod. Agents share it, so that the one on the faulty node knows what the others see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodActivity {
    /// The connections of its ranks to MindIO's controller.
    pub connections: ConnectionHistory,
    /// The checkpoint folder that was renamed last.
    pub renamed: Option<Renamed>,
    /// Whether the launcher hook is active in it; `None` if that isn't known.
    #[serde(skip)]
    pub has_active_hook: Option<bool>,
}

impl PodActivity {
    /// Whether its ranks were ever connected to MindIO's controller, or saved.
    pub const fn has_activity(&self) -> bool {
        self.connections.was_connected() || self.renamed.is_some()
    }
}

/// A checkpoint folder that got its final name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// Its path in the container.
    pub folder: String,
    /// When that was noticed, in milliseconds since 1970.
    pub at: u64,
}

/// The activity of Pods, by UID.
pub type Activity = BTreeMap<String, PodActivity>;

/// What `activity` says of a dump after a fault at `since`, both times in milliseconds.
pub(crate) fn merge<'a>(
    activity: impl Iterator<Item = &'a PodActivity> + Clone,
    since: u64,
    now: u64,
) -> (Processors, Option<&'a str>) {
    let since = since.saturating_sub(SKEW);
    let states = activity.clone().map(|pod| pod.connections.processors(since, now));
    let processors = states.fold(Processors::NotSeen, |merged, state| match (merged, state) {
        (Processors::Connected, _) | (_, Processors::Connected) => Processors::Connected,
        (Processors::Disconnected, _) | (_, Processors::Disconnected) => Processors::Disconnected,
        _ => Processors::NotSeen,
    });
    let renamed = activity.filter_map(|pod| pod.renamed.as_ref()).find(|renamed| renamed.at >= since);
    (processors, renamed.map(|renamed| renamed.folder.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_any_node_that_are_connected_count_and_an_earlier_rename_does_not() {
        let pod = |connections: &[(usize, u64)], renamed: Option<u64>| {
            let mut pod = PodActivity::default();
            for &(count, at) in connections {
                pod.connections.record(Some(count), at);
            }
            pod.renamed = renamed.map(|at| Renamed { folder: "/save/iter_7".to_owned(), at });
            pod
        };
        let unseen = pod(&[], None);
        let saving = pod(&[(2, 1_000)], None);
        let saved = pod(&[(2, 1_000), (0, 60_000)], Some(59_000));
        let merged = |pods: &[&PodActivity]| {
            let (processors, renamed) = merge(pods.iter().copied(), 50_000, 70_000);
            (processors, renamed.is_some())
        };
        assert_eq!(merged(&[]), (Processors::NotSeen, false));
        assert_eq!(merged(&[&unseen, &saved]), (Processors::Disconnected, true));
        assert_eq!(merged(&[&saved, &saving]), (Processors::Connected, true));
        assert_eq!(merged(&[&pod(&[(1, 0), (0, 20_000)], Some(20_000))]), (Processors::NotSeen, false));
    }
}
