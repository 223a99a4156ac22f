//! Would anything be saved? Asked before a fault is sent that ends ranks.
//!
//! ClusterD ends the ranks on a faulty device first and looks afterwards whether it can order a dump. So a fault that is
//! sent without looking can cost a training run what a fault that is held back would not.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use swansong_clusterd::reset_config;
use swansong_fault_model::Subject;

use super::pod::NpuPod;

const STRATEGY: &str = "recover-strategy";
const STATUS: &str = "ProcessRecoverStatus";
const ENABLED: &str = "process-recover-enable";
const DUMP: &str = "dump";

/// Why ranks would end and nothing be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objection {
    /// The pod that it is about, `namespace/name`; `None` for the node as a whole.
    pub(crate) pod: Option<String>,
    pub(crate) why: Why,
}

/// What is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    /// ClusterD drops faults of a node without a device-info ConfigMap, and says nothing.
    NoDeviceInfo(String),
    /// The pod has devices and no configuration that names them.
    NotConfigured,
    /// The job has a dump in mind and no PodGroup that says so.
    NoPodGroup,
    /// The PodGroup's label doesn't switch recovery on.
    RecoveryOff,
    /// ClusterD doesn't read a strategy with blanks.
    StrategyPadded(String),
    /// There is no reset ConfigMap.
    NoResetConfig(String),
    /// There is one that ClusterD can't use.
    ResetConfigUnusable(String, String),
    /// ClusterD doesn't take the job for running yet.
    NotRunning(String),
    /// The API server couldn't be asked.
    NotSeen(String),
}

/// A PodGroup (`scheduling.volcano.sh/v1beta1`) as far as recovery goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) strategy: Option<String>,
    pub(crate) enabled: bool,
    /// ClusterD has done what it does about a fault, and waits for the job to be scheduled anew (`handleFaultRetry`).
    pub(crate) paused: bool,
    /// `ProcessRecoverStatus`.
    pub(crate) status: Option<String>,
}

/// What was found of a pod's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) group: Option<Group>,
    pub(crate) reset_config: reset_config::State,
    /// `job_status` of `job-summary-<job>`; `None` without such a ConfigMap.
    pub(crate) job_status: Option<String>,
}

impl Group {
    /// Reads a PodGroup.
    pub(crate) fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct PodGroup {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            labels: Option<BTreeMap<String, Option<String>>>,
            annotations: Option<BTreeMap<String, Option<String>>>,
        }
        let PodGroup { metadata } = serde_json::from_slice(json)?;
        let mut annotations = metadata.annotations.unwrap_or_default();
        let labels = metadata.labels.unwrap_or_default();
        let is = |wanted| labels.get(ENABLED).is_some_and(|value| value.as_deref() == Some(wanted));
        Ok(Self {
            strategy: annotations.remove(STRATEGY).flatten(),
            enabled: is("on"),
            paused: is("pause"),
            status: annotations.remove(STATUS).flatten(),
        })
    }

    /// Whether a dump is meant, and whether ClusterD reads it.
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

    /// Whether the dump is the first thing that ClusterD would try (`SortRecoverStrategies`).
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

/// What speaks against sending a fault of `subject` that ends ranks of `pod`.
pub(crate) fn objections(pod: &NpuPod, subject: Subject, found: &Found) -> Vec<Objection> {
    let name = format!("{}/{}", pod.namespace, pod.name);
    let object = |why| Objection { pod: Some(name.clone()), why };
    let Some(job) = pod.job_name() else { return Vec::new() };
    let Some(group) = &found.group else {
        // Without a PodGroup ClusterD knows no strategy; only one who was promised a dump misses it.
        return if pod.group.is_some() { vec![object(Why::NoPodGroup)] } else { Vec::new() };
    };
    match group.dump() {
        Dump::No => return Vec::new(),
        Dump::Padded => {
            return vec![object(Why::StrategyPadded(group.strategy.clone().unwrap_or_default()))];
        }
        Dump::Read => {}
    }
    let mut objections = Vec::new();
    if !group.enabled {
        objections.push(object(Why::RecoveryOff));
    }
    let configured = match (&pod.configured, subject) {
        (None, _) => false,
        (Some(_), Subject::Node) => true,
        (Some(ids), Subject::Npu(id)) => ids.contains(&id),
    };
    if !configured {
        objections.push(object(Why::NotConfigured));
    }
    let map = reset_config::name_for(job);
    match &found.reset_config {
        reset_config::State::Usable => {}
        reset_config::State::Missing => objections.push(object(Why::NoResetConfig(map))),
        reset_config::State::Unusable(why) => {
            objections.push(object(Why::ResetConfigUnusable(map, why.to_string())));
        }
    }
    let status = found.job_status.as_deref().unwrap_or("not told yet");
    if !pod.running || status != "running" {
        let status = if pod.running { status } else { "its pod doesn't run yet" };
        objections.push(object(Why::NotRunning(status.to_owned())));
    }
    objections
}

impl Why {
    /// All names.
    pub(crate) const NAMES: [&'static str; 9] = [
        "DeviceInfoNotUsable",
        "PodNotConfigured",
        "PodGroupMissing",
        "RecoveryOff",
        "StrategyPadded",
        "ResetConfigMissing",
        "ResetConfigNotUsable",
        "JobNotRunning",
        "JobNotSeen",
    ];

    /// CamelCase, for Events and metrics.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::NoDeviceInfo(_) => "DeviceInfoNotUsable",
            Self::NotConfigured => "PodNotConfigured",
            Self::NoPodGroup => "PodGroupMissing",
            Self::RecoveryOff => "RecoveryOff",
            Self::StrategyPadded(_) => "StrategyPadded",
            Self::NoResetConfig(_) => "ResetConfigMissing",
            Self::ResetConfigUnusable(..) => "ResetConfigNotUsable",
            Self::NotRunning(_) => "JobNotRunning",
            Self::NotSeen(_) => "JobNotSeen",
        }
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pod) = &self.pod {
            write!(f, "pod {pod}: ")?;
        }
        match &self.why {
            Why::NoDeviceInfo(why) => write!(
                f,
                "ClusterD would drop the fault, since the device plugin's ConfigMap of this node {why}; see to the \
                 device plugin"
            ),
            Why::NotConfigured => f.write_str(
                "it uses the device, and its annotation ascend.kubectl.kubernetes.io/ascend-910-configuration doesn't \
                 name it; see to the device plugin",
            ),
            Why::NoPodGroup => f.write_str("its PodGroup is gone, so ClusterD knows no strategy of the job"),
            Why::RecoveryOff => f.write_str(
                "its PodGroup has no label process-recover-enable: \"on\", so ClusterD lets no TaskD Manager register",
            ),
            Why::StrategyPadded(strategy) => write!(
                f,
                "its PodGroup says recover-strategy: {strategy:?}, of which ClusterD doesn't read dump; write it \
                 without blanks"
            ),
            Why::NoResetConfig(name) => write!(
                f,
                "ConfigMap {name} is missing, without which ClusterD ends ranks and saves nothing; `swansong webhook` \
                 makes it, or apply one by hand"
            ),
            Why::ResetConfigUnusable(name, why) => {
                write!(f, "ConfigMap {name} {why}; delete it, and it is made anew")
            }
            Why::NotRunning(status) => {
                write!(f, "ClusterD doesn't take the job for running ({status}), and would do nothing")
            }
            Why::NotSeen(problem) => write!(f, "it can't be told whether its job could dump: {problem}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::pod::Owner;

    fn pod() -> NpuPod {
        NpuPod {
            namespace: "ml".to_owned(),
            name: "bert-worker-0".to_owned(),
            uid: "u".to_owned(),
            container: "ascend".to_owned(),
            running: true,
            group: Some("bert-j".to_owned()),
            job: Some(Owner { name: "bert".to_owned(), ..Owner::default() }),
            configured: Some(vec![0, 3]),
            granted: vec![0, 3],
            rank: Some(0),
            fast_dump: false,
        }
    }

    fn found() -> Found {
        let group = Group {
            strategy: Some("recover,dump".to_owned()),
            enabled: true,
            status: None,
            ..Group::default()
        };
        Found {
            group: Some(group),
            reset_config: reset_config::State::Usable,
            job_status: Some("running".to_owned()),
        }
    }

    fn why(pod: &NpuPod, found: &Found) -> Vec<&'static str> {
        objections(pod, Subject::Npu(3), found).iter().map(|objection| objection.why.as_str()).collect()
    }

    #[test]
    fn a_job_that_can_dump() {
        assert!(why(&pod(), &found()).is_empty());
    }

    #[test]
    fn each_thing_that_keeps_it_from_being_saved() {
        let group = |change: fn(&mut Group)| {
            let mut found = found();
            change(found.group.as_mut().expect("there"));
            found
        };
        let off = group(|group| group.enabled = false);
        let padded = group(|group| group.strategy = Some("recover, dump".to_owned()));
        let table: [(&str, NpuPod, Found); 8] = [
            ("RecoveryOff", pod(), off),
            ("StrategyPadded", pod(), padded),
            ("PodGroupMissing", pod(), Found { group: None, ..found() }),
            ("ResetConfigMissing", pod(), Found { reset_config: reset_config::State::Missing, ..found() }),
            (
                "ResetConfigNotUsable",
                pod(),
                Found { reset_config: reset_config::state(Some(&BTreeMap::new())), ..found() },
            ),
            ("JobNotRunning", pod(), Found { job_status: Some("pending".to_owned()), ..found() }),
            ("JobNotRunning", NpuPod { running: false, ..pod() }, found()),
            ("PodNotConfigured", NpuPod { configured: Some(vec![0]), ..pod() }, found()),
        ];
        for (expected, pod, found) in table {
            assert_eq!(why(&pod, &found), [expected]);
        }
        assert_eq!(
            why(&NpuPod { configured: None, ..pod() }, &Found { job_status: None, ..found() }).len(),
            2
        );
    }

    #[test]
    fn a_job_that_asks_for_no_dump_loses_none() {
        for strategy in [None, Some("recover"), Some("dumpling"), Some("")] {
            let group = Group {
                strategy: strategy.map(str::to_owned),
                enabled: false,
                status: None,
                ..Group::default()
            };
            let found =
                Found { group: Some(group), reset_config: reset_config::State::Missing, job_status: None };
            assert!(why(&pod(), &found).is_empty(), "{strategy:?}");
        }
        assert!(why(&NpuPod { job: None, ..pod() }, &Found { group: None, ..found() }).is_empty());
    }

    #[test]
    fn which_jobs_dump_first() {
        for (strategy, first) in [
            ("dump", true),
            ("dump,exit", true),
            ("exit,dump", true),
            ("recover,dump", false),
            ("exit", false),
        ] {
            let group = Group {
                strategy: Some(strategy.to_owned()),
                enabled: true,
                status: None,
                ..Group::default()
            };
            assert_eq!(group.dumps_first(), first, "{strategy}");
        }
    }

    #[test]
    fn what_is_read_of_a_pod_group() {
        let json = br#"{"metadata":{"labels":{"process-recover-enable":"on"},"annotations":{"recover-strategy":"dump","ProcessRecoverStatus":"dump-success","x":null}},"spec":{}}"#;
        let group = Group::read(json).expect("a PodGroup");
        assert_eq!(group.status.as_deref(), Some("dump-success"));
        assert!(group.enabled && group.dumps_first());
        assert_eq!(Group::read(br#"{"metadata":{}}"#).ok(), Some(Group::default()));
    }
}
