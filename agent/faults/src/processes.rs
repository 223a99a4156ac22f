//! What the agent sees of the processes of Pods, which another part of it inspects.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swansong_fault_model::outcome::{ConnectionHistory, Processors};
use swansong_fault_model::rank_process::NoRankEnded;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::pod::NpuPod;

/// The clocks of two nodes may differ by this much, in milliseconds.
const SKEW: u64 = 2_000;

/// Ends processes of Pods.
pub trait Processes: Debug + Send + Sync {
    /// Ends the rank of `pod` on the device `npu`, and returns its process id. It blocks for the time of an inspection.
    ///
    /// # Errors
    ///
    /// When it isn't certain which process that is, or nothing protects the other ranks.
    fn end_rank(&self, pod: &NpuPod, npu: u32) -> Result<i32, NoRankEnded>;
}

/// How often and after which time a refusal that may pass is followed by another attempt.
const RETRIES: (u32, Duration) = (3, Duration::from_millis(500));

/// Ends the rank of `pod` on the device `npu`. A process that ends meanwhile makes the inspection fail.
pub(crate) async fn end_rank(
    processes: Arc<dyn Processes>,
    pod: NpuPod,
    npu: u32,
) -> Result<i32, NoRankEnded> {
    if !pod.dump.has_hook {
        return Err(NoRankEnded::NoHook);
    }
    let pod = Arc::new(pod);
    let mut retries = 0..RETRIES.0;
    loop {
        let (processes, pod) = (Arc::clone(&processes), Arc::clone(&pod));
        let attempt = spawn_blocking(move || processes.end_rank(&pod, npu)).await;
        let result = attempt.unwrap_or_else(|panic| Err(NoRankEnded::NotInspected(panic.to_string())));
        match result {
            Err(error) if error.is_transient() && retries.next().is_some() => sleep(RETRIES.1).await,
            result => return result,
        }
    }
}

/// What is seen of the dump of a Pod. Agents share it, so that the one on the faulty node knows what the others see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodActivity {
    /// The connections of its ranks to MindIO's controller.
    pub connections: ConnectionHistory,
    /// The checkpoint folder that last got its final name.
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
    /// When that was, in milliseconds since 1970.
    pub at: u64,
}

/// The activity of Pods, by UID.
pub type Activity = BTreeMap<String, PodActivity>;

/// A Pod of a job that a fault has hit, and what an agent sees of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObservedPod<'a> {
    /// Whether its ranks may still save: it has started and not ended.
    pub may_save: bool,
    /// `None` if no agent shares anything.
    pub activity: Option<&'a PodActivity>,
}

/// The times that decide what belongs to a dump, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DumpTimes {
    /// When ClusterD accepted the fault, or a rank was ended.
    pub since: u64,
    /// No dump is ordered before.
    pub order: u64,
    pub now: u64,
}

/// What is seen of the dump of a job.
pub(crate) fn merge<'a>(
    pods: &[ObservedPod<'a>],
    DumpTimes { since, order, now }: DumpTimes,
) -> (Processors, Option<&'a str>) {
    let since = since.saturating_sub(SKEW);
    let mut states = pods.iter().filter(|pod| pod.may_save).map(|pod| {
        let state = |seen: &PodActivity| seen.connections.processors(since, order, now);
        pod.activity.map_or(Processors::NotSeen, state)
    });
    // A Pod of which nothing is known may save.
    let processors = states.clone().find(|state| *state == Processors::Connected).unwrap_or_else(|| {
        let have_disconnected = !pods.is_empty() && states.all(|state| state == Processors::Disconnected);
        if have_disconnected { Processors::Disconnected } else { Processors::NotSeen }
    });
    let mut renamed = pods.iter().filter_map(|pod| pod.activity?.renamed.as_ref());
    let renamed = renamed.find(|renamed| renamed.at >= order.saturating_sub(SKEW));
    (processors, renamed.map(|renamed| renamed.folder.as_str()))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};
    use std::sync::Mutex;

    use super::Processors::{Connected, Disconnected, NotSeen};
    use super::*;
    use crate::pod::DumpSettings;

    const TIMES: DumpTimes = DumpTimes { since: 50_000, order: 55_000, now: 70_000 };

    /// A Pod with so many connections at these times.
    fn activity(connections: &[(u64, u64)], renamed: Option<u64>) -> PodActivity {
        let mut pod = PodActivity::default();
        for &(count, at) in connections {
            pod.connections.record(Some(&(0..count).collect::<BTreeSet<u64>>()), at);
        }
        pod.renamed = renamed.map(|at| Renamed { folder: "/save/iter_7".to_owned(), at });
        pod
    }

    /// Answers with these results, then with success.
    #[derive(Debug)]
    struct Answers(Mutex<VecDeque<NoRankEnded>>);

    impl Processes for Answers {
        fn end_rank(&self, _: &NpuPod, _: u32) -> Result<i32, NoRankEnded> {
            self.0.lock().expect("no panic").pop_front().map_or(Ok(7), Err)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_that_may_pass_is_followed_by_another_attempt() {
        let vanished = || NoRankEnded::NotInspected("process 9: it has ended".to_owned());
        let changed = || NoRankEnded::NotEnded { pid: 7, why: "it changed".to_owned() };
        let several = || NoRankEnded::SeveralProcesses { device: 3, pids: vec![7, 8] };
        let dump = DumpSettings { has_hook: true, ..DumpSettings::default() };
        let pod = NpuPod { dump, ..NpuPod::default() };
        for (refusals, expected) in [
            (vec![], Ok(7)),
            (vec![vanished(), changed()], Ok(7)),
            (vec![several()], Err(several())),
            (vec![NoRankEnded::HookNotActive], Err(NoRankEnded::HookNotActive)),
            (vec![vanished(), vanished(), vanished(), changed()], Err(changed())),
        ] {
            let answers = Arc::new(Answers(Mutex::new(refusals.into())));
            assert_eq!(end_rank(answers, pod.clone(), 3).await, expected);
        }
        let answers = Arc::new(Answers(Mutex::default()));
        assert_eq!(end_rank(answers, NpuPod::default(), 3).await, Err(NoRankEnded::NoHook));
    }

    #[test]
    fn ranks_have_disconnected_only_if_all_pods_that_may_save_were_observed() {
        let saving = activity(&[(2, 1_000)], None);
        let saved = activity(&[(2, 1_000), (0, 60_000)], None);
        let long_ago = activity(&[(1, 0), (0, 20_000)], None);
        let never = activity(&[(0, 60_000)], None);
        let running = |activity| ObservedPod { may_save: true, activity };
        let ended = |activity| ObservedPod { may_save: false, activity };
        for (index, (pods, expected)) in [
            (vec![], NotSeen),
            (vec![running(Some(&saved)), running(Some(&saved))], Disconnected),
            (vec![running(Some(&saved)), running(Some(&saving))], Connected),
            (vec![running(Some(&saved)), running(None)], NotSeen),
            (vec![running(Some(&saved)), running(Some(&never))], NotSeen),
            (vec![running(Some(&saved)), running(Some(&long_ago))], NotSeen),
            (vec![running(None), running(Some(&saving))], Connected),
            // One that has ended saves no longer, even if it was last seen connected.
            (vec![running(Some(&saved)), ended(None)], Disconnected),
            (vec![running(Some(&saved)), ended(Some(&saving))], Disconnected),
            (vec![ended(None)], Disconnected),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(merge(&pods, TIMES).0, expected, "row {index}");
        }
    }

    #[test]
    fn folder_that_got_its_name_before_the_order_is_of_another_save() {
        for (at, expected) in [(49_000, false), (52_000, false), (54_000, true), (60_000, true)] {
            let renamed = activity(&[], Some(at));
            for may_save in [true, false] {
                let pod = ObservedPod { may_save, activity: Some(&renamed) };
                assert_eq!(merge(&[pod], TIMES).1.is_some(), expected, "{at}, {may_save}");
            }
        }
    }
}
