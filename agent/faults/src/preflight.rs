//! Whether the jobs on a device would save a checkpoint if ClusterD ended their ranks.
//!
//! ClusterD ends the ranks on a faulty device first and checks afterwards whether it can order a dump. A fault that is sent
//! without these checks can cost a training run that a held one would not.

use std::collections::BTreeMap;
use std::fmt;

use swansong_clusterd::reset_config;
use swansong_fault_model::Subject;

use crate::pod::NpuPod;
use crate::processes::PodActivity;

const STRATEGY: &str = "recover-strategy";
const STATUS: &str = "ProcessRecoverStatus";
const ENABLED: &str = "process-recover-enable";
const DUMP: &str = "dump";

/// Why ranks would end without a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// The affected Pod, `namespace/name`; `None` for the node as a whole.
    pub pod: Option<String>,
    /// What is missing.
    pub why: Why,
}

/// What is missing. The names are label values of metrics and in the documentation.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Why {
    /// ClusterD drops all faults of a node without a usable device-info ConfigMap, without an error.
    DeviceInfoNotUsable(String),
    /// The Pod uses the device, and its configuration doesn't name it.
    PodNotConfigured,
    /// The job asks for a dump, and its PodGroup is gone.
    PodGroupMissing,
    /// The PodGroup's label doesn't switch recovery on.
    RecoveryOff,
    /// ClusterD doesn't read a strategy with blanks.
    StrategyPadded(String),
    /// The reset ConfigMap is missing.
    ResetConfigMissing(String),
    /// ClusterD can't use the reset ConfigMap.
    ResetConfigNotUsable(String, String),
    /// ClusterD doesn't consider the job running.
    JobNotRunning(String),
    /// The API server could not be asked.
    JobStateUnknown(String),
}

/// The recovery part of a PodGroup (`scheduling.volcano.sh/v1beta1`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodGroup {
    /// The annotation `recover-strategy`.
    pub strategy: Option<String>,
    /// Whether label `process-recover-enable` is `on`.
    pub is_enabled: bool,
    /// Whether it is `pause`: ClusterD has handled a fault and waits for the job to be scheduled again
    /// (`handleFaultRetry`).
    pub is_paused: bool,
    /// The annotation `ProcessRecoverStatus`.
    pub status: Option<String>,
}

/// The objects of a Pod's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobState {
    pub group: Option<PodGroup>,
    pub reset_config: reset_config::State,
    /// `job_status` of `job-summary-<job>`; `None` without such a ConfigMap.
    pub status: Option<String>,
    /// Whether ascend-operator deletes the Pods that still run when one has failed.
    pub deletes_running_pods: bool,
    /// Whether Volcano deletes a Pod with a faulty device at once (`fault-scheduling: force`).
    pub is_force_deleted: bool,
}

/// What may cost the checkpoint although ClusterD orders a dump. It doesn't hold back a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Warning {
    /// The surviving Pods are deleted while they save.
    #[strum(
        to_string = "the job's cleanPodPolicy deletes the Pods of the other ranks while they save; set it to None"
    )]
    RunningPodsDeleted,
    /// The Pod is deleted before its ranks have saved.
    #[strum(
        to_string = "the label fault-scheduling: force lets Volcano delete the Pod before a dump; use grace"
    )]
    PodForceDeleted,
    /// TaskD ends the ranks of the node while they save.
    #[strum(
        to_string = "the Pod has no launcher hook, so TaskD ends its other ranks, and on rank 0's node MindIO's \
                     controller, while they save"
    )]
    NoHook,
    /// As without it.
    #[strum(
        to_string = "the launcher hook isn't active in the Pod, so TaskD ends its other ranks, and on rank 0's node \
                     MindIO's controller, while they save"
    )]
    HookNotActive,
}

/// Whether ascend-operator deletes running Pods of a failed job with this `cleanPodPolicy`.
pub(crate) fn deletes_running_pods(policy: &str) -> bool {
    matches!(policy, "Running" | "All")
}

/// What may cost the checkpoint of the job of `pod`.
pub(crate) fn warnings(pod: &NpuPod, job: &JobState, activity: Option<&PodActivity>) -> Vec<Warning> {
    if !job.group.as_ref().is_some_and(PodGroup::dumps) {
        return Vec::new();
    }
    let needs_hook = pod.rank.is_none_or(|rank| rank == 0) || pod.ranks().devices.len() != 1;
    let is_active = activity.and_then(|activity| activity.has_active_hook);
    [
        (job.deletes_running_pods, Warning::RunningPodsDeleted),
        (job.is_force_deleted, Warning::PodForceDeleted),
        (needs_hook && !pod.dump.has_hook, Warning::NoHook),
        (needs_hook && pod.dump.has_hook && is_active == Some(false), Warning::HookNotActive),
    ]
    .into_iter()
    .filter_map(|(applies, warning)| applies.then_some(warning))
    .collect()
}

impl PodGroup {
    /// Reads labels and annotations.
    pub(crate) fn new(
        mut labels: BTreeMap<String, String>,
        mut annotations: BTreeMap<String, String>,
    ) -> Self {
        let enabled = labels.remove(ENABLED);
        Self {
            strategy: annotations.remove(STRATEGY),
            is_enabled: enabled.as_deref() == Some("on"),
            is_paused: enabled.as_deref() == Some("pause"),
            status: annotations.remove(STATUS),
        }
    }

    /// Whether a dump is asked for, and whether ClusterD reads that.
    fn dump(&self) -> Dump {
        let strategy = self.strategy.as_deref().unwrap_or_default();
        if strategy.split(',').any(|token| token == DUMP) {
            Dump::Read
        } else if strategy.split(',').any(|token| token.trim() == DUMP) {
            Dump::Padded
        } else {
            Dump::No
        }
    }

    /// Whether the job asks for a dump in a way that ClusterD reads.
    pub(crate) fn dumps(&self) -> bool {
        self.dump() == Dump::Read
    }

    /// Whether the dump is the first strategy that ClusterD would try (`SortRecoverStrategies`).
    pub(crate) fn dumps_first(&self) -> bool {
        let strategy = self.strategy.as_deref().unwrap_or_default();
        let mut tokens = strategy.split(',');
        self.dumps() && tokens.all(|token| matches!(token, DUMP | "exit"))
    }
}

#[derive(PartialEq, Eq)]
enum Dump {
    Read,
    Padded,
    No,
}

/// The objections to a fault of `subject` that ends ranks of `pod`.
pub(crate) fn objections(pod: &NpuPod, subject: Subject, found: &JobState) -> Vec<Objection> {
    let name = pod.reference.to_string();
    let object = |why| Objection { pod: Some(name.clone()), why };
    let Some(job) = &pod.reference.job else { return Vec::new() };
    let Some(group) = &found.group else {
        // Without a PodGroup ClusterD has no strategy; a Pod that never had one asks for no dump.
        return if pod.reference.group.is_some() { vec![object(Why::PodGroupMissing)] } else { Vec::new() };
    };
    match group.dump() {
        Dump::No => return Vec::new(),
        Dump::Padded => {
            return vec![object(Why::StrategyPadded(group.strategy.clone().unwrap_or_default()))];
        }
        Dump::Read => {}
    }
    let mut objections = Vec::new();
    if !group.is_enabled {
        objections.push(object(Why::RecoveryOff));
    }
    let configured = match (&pod.configured, subject) {
        (None, _) => false,
        (Some(_), Subject::Node) => true,
        (Some(ids), Subject::Npu(id)) => ids.contains(&id),
    };
    if !configured {
        objections.push(object(Why::PodNotConfigured));
    }
    let map = reset_config::name_for(&job.name);
    match &found.reset_config {
        reset_config::State::Usable => {}
        reset_config::State::Missing => objections.push(object(Why::ResetConfigMissing(map))),
        reset_config::State::Unusable(why) => {
            objections.push(object(Why::ResetConfigNotUsable(map, why.to_string())));
        }
    }
    let status = found.status.as_deref().unwrap_or("unknown");
    if !pod.is_running || status != "running" {
        let status = if pod.is_running { status } else { "its Pod isn't running" };
        objections.push(object(Why::JobNotRunning(status.to_owned())));
    }
    objections
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pod) = &self.pod {
            write!(f, "Pod {pod}: ")?;
        }
        match &self.why {
            Why::DeviceInfoNotUsable(why) => write!(
                f,
                "ClusterD would drop the fault, since the device plugin's ConfigMap of this node {why}; check the \
                 device plugin"
            ),
            Why::PodNotConfigured => f.write_str(
                "it uses the device, and its annotation ascend.kubectl.kubernetes.io/ascend-910-configuration doesn't \
                 name it; check the device plugin",
            ),
            Why::PodGroupMissing => f.write_str("its PodGroup doesn't exist, so ClusterD has no strategy for the job"),
            Why::RecoveryOff => f.write_str(
                "its PodGroup has no label process-recover-enable: \"on\", so ClusterD lets no TaskD Manager register",
            ),
            Why::StrategyPadded(strategy) => write!(
                f,
                "its PodGroup says recover-strategy: {strategy:?}, of which ClusterD doesn't read dump; write it \
                 without blanks"
            ),
            Why::ResetConfigMissing(name) => write!(
                f,
                "ConfigMap {name} is missing, without which ClusterD ends ranks and saves nothing; `swansong webhook` \
                 creates it, or apply one manually"
            ),
            Why::ResetConfigNotUsable(name, why) => {
                write!(f, "ConfigMap {name} {why}; delete it to have it created again")
            }
            Why::JobNotRunning(status) => {
                write!(f, "ClusterD doesn't consider the job running ({status}), and would do nothing")
            }
            Why::JobStateUnknown(problem) => write!(f, "whether its job could dump is unknown: {problem}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{DumpSettings, Owner, PodReference};

    fn pod() -> NpuPod {
        NpuPod {
            reference: PodReference {
                namespace: "ml".to_owned(),
                name: "bert-worker-0".to_owned(),
                group: Some("bert-j".to_owned()),
                job: Some(Owner { name: "bert".to_owned(), ..Owner::default() }),
                ..PodReference::default()
            },
            is_running: true,
            configured: Some(vec![0, 3]),
            granted: vec![0, 3],
            rank: Some(1),
            ..NpuPod::default()
        }
    }

    fn group(strategy: Option<&str>) -> PodGroup {
        let strategy = strategy.map(str::to_owned);
        PodGroup { strategy, is_enabled: true, ..PodGroup::default() }
    }

    fn found() -> JobState {
        JobState {
            group: Some(group(Some("recover,dump"))),
            reset_config: reset_config::State::Usable,
            status: Some("running".to_owned()),
            deletes_running_pods: false,
            is_force_deleted: false,
        }
    }

    fn why(pod: &NpuPod, found: &JobState) -> Vec<&'static str> {
        objections(pod, Subject::Npu(3), found).iter().map(|objection| (&objection.why).into()).collect()
    }

    #[test]
    fn job_that_can_dump_has_no_objections() {
        assert!(why(&pod(), &found()).is_empty());
    }

    #[test]
    fn each_missing_part_is_an_objection() {
        let group = |change: fn(&mut PodGroup)| {
            let mut found = found();
            change(found.group.as_mut().expect("there"));
            found
        };
        let off = group(|group| group.is_enabled = false);
        let padded = group(|group| group.strategy = Some("recover, dump".to_owned()));
        let table: [(&str, NpuPod, JobState); 8] = [
            ("RecoveryOff", pod(), off),
            ("StrategyPadded", pod(), padded),
            ("PodGroupMissing", pod(), JobState { group: None, ..found() }),
            ("ResetConfigMissing", pod(), JobState { reset_config: reset_config::State::Missing, ..found() }),
            (
                "ResetConfigNotUsable",
                pod(),
                JobState { reset_config: reset_config::state(Some(&BTreeMap::new())), ..found() },
            ),
            ("JobNotRunning", pod(), JobState { status: Some("pending".to_owned()), ..found() }),
            ("JobNotRunning", NpuPod { is_running: false, ..pod() }, found()),
            ("PodNotConfigured", NpuPod { configured: Some(vec![0]), ..pod() }, found()),
        ];
        for (expected, pod, found) in table {
            assert_eq!(why(&pod, &found), [expected]);
        }
        assert_eq!(
            why(&NpuPod { configured: None, ..pod() }, &JobState { status: None, ..found() }).len(),
            2
        );
    }

    #[test]
    fn job_that_asks_for_no_dump_objects_to_nothing() {
        for strategy in [None, Some("recover"), Some("dumpling"), Some("")] {
            let group = Some(PodGroup { is_enabled: false, ..group(strategy) });
            let reset_config = reset_config::State::Missing;
            let found = JobState { group, reset_config, status: None, deletes_running_pods: true, ..found() };
            assert!(why(&pod(), &found).is_empty(), "{strategy:?}");
            assert!(warnings(&pod(), &found, None).is_empty(), "{strategy:?}");
        }
        let mut without_job = pod();
        without_job.reference.job = None;
        assert!(why(&without_job, &JobState { group: None, ..found() }).is_empty());
    }

    #[test]
    fn clean_pod_policies_that_delete_running_pods_are_known() {
        for (policy, deletes) in [("None", false), ("", false), ("Running", true), ("All", true)] {
            assert_eq!(deletes_running_pods(policy), deletes, "{policy}");
        }
    }

    #[test]
    fn dump_comes_first_only_without_other_strategies() {
        for (strategy, first) in [
            ("dump", true),
            ("dump,exit", true),
            ("exit,dump", true),
            ("recover,dump", false),
            ("exit", false),
        ] {
            assert_eq!(group(Some(strategy)).dumps_first(), first, "{strategy}");
        }
    }

    #[test]
    fn what_may_cost_the_checkpoint_is_warned_about() {
        use Warning::{HookNotActive, NoHook, PodForceDeleted, RunningPodsDeleted};
        let hook = DumpSettings { has_hook: true, ..DumpSettings::default() };
        let hooked = NpuPod { dump: hook, ..pod() };
        let alone = NpuPod { configured: Some(vec![3]), ..pod() };
        let first = NpuPod { rank: Some(0), ..alone.clone() };
        let forced = JobState { is_force_deleted: true, deletes_running_pods: true, ..found() };
        let activity = |has_active_hook| PodActivity { has_active_hook, ..PodActivity::default() };
        for (pod, job, active, expected) in [
            (&pod(), &found(), None, &[NoHook][..]),
            (&first, &found(), None, &[NoHook]),
            (&alone, &found(), None, &[]),
            (&hooked, &found(), None, &[]),
            (&hooked, &found(), Some(true), &[]),
            (&hooked, &found(), Some(false), &[HookNotActive]),
            (&hooked, &forced, Some(true), &[RunningPodsDeleted, PodForceDeleted]),
        ] {
            assert_eq!(warnings(pod, job, Some(&activity(active))), expected);
        }
    }
}
