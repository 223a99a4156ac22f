//! Whether the preloaded libraries are live in the Pods of this node.
//!
//! A wrong path in LD_PRELOAD only makes the loader print a line; TaskD misses its library when a fault occurs. So the
//! processes are inspected shortly after their start:
//!
//! ```text
//! Pods → expected libraries ┐
//! procfs → cgroup → process ┴→ observed process → verdict → debounced verdict
//! ```

mod debounce;
mod discovery;
mod image;
mod launcher;
mod pod;
mod reason;
mod scan;
mod verdict;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

pub use self::debounce::Debouncer;
pub use self::discovery::{Discovery, DiscoveryReason};
pub use self::image::ImageReports;
pub use self::launcher::{HookReason, HookVerdict, Launcher, Python};
pub use self::pod::{InjectedContainer, InjectedPod};
pub use self::reason::PreloadReason;
pub use self::scan::ScanError;
pub use self::verdict::{
    Environment, FileState, Library, MAX_MISSING, MissingLibrary, ObservedProcess, Outcome, Role, Verdict,
    judge,
};
use crate::host::{HostRoot, Machine, ld_so_preload};
use crate::trainer::TrainerVerdict;

/// When processes are inspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The age from which a process is judged, and the time for which a bad verdict must hold before it is reported.
    pub grace: Duration,
    /// Time between two scans.
    pub interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), interval: Duration::from_secs(30) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodVerdict {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// The verdicts on its injected containers.
    pub containers: Vec<ContainerVerdict>,
    /// How the search for the libraries in its image ended; `None` if they aren't searched.
    pub discovery: Option<Discovery>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerVerdict {
    pub name: String,
    /// Whether its preload is live; `None` if nothing is preloaded.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
    /// Whether its launcher hook is active; `None` if it has none.
    pub launcher_hook: Option<HookVerdict>,
    /// Variables that its processes lack to find MindIO's controller.
    pub missing_environment: Vec<&'static str>,
    /// Whether its training program can save; `None` if it runs none that is known.
    pub trainer: Option<TrainerVerdict>,
    /// What its image has and lacks; `None` if its files can't be read.
    pub image: Option<swansong_image::Report>,
    /// What is wrong with its /etc/ld.so.preload.
    pub ld_so_preload: Option<String>,
}

impl PodVerdict {
    /// Whether the launcher hook is active; `None` if that isn't known, or there is none.
    pub fn has_active_hook(&self) -> Option<bool> {
        self.containers.iter().find_map(|container| container.launcher_hook.as_ref()?.is_active)
    }
}

/// Inspects the processes of `pods` below `proc`. Processes younger than `grace` aren't judged.
///
/// It accesses the file systems of containers, so it blocks if one of them hangs.
///
/// # Errors
///
/// When `proc` isn't a procfs. What single processes hide is part of the verdict.
pub fn scan(
    proc: &Path,
    pods: &[InjectedPod],
    grace: Duration,
    machine: Machine,
) -> Result<Vec<PodVerdict>, ScanError> {
    let mut processes = scan::observe(proc, pods, machine)?;
    let verdicts = pods.iter().enumerate().map(|(p, pod)| {
        let containers = pod.containers.iter().enumerate().map(|(c, container)| {
            let processes = processes.remove(&(p, c)).unwrap_or_default();
            let verdict = match &container.id {
                None => Verdict::unknown(PreloadReason::NotStarted),
                Some(_) => judge(&processes, grace),
            };
            ContainerVerdict {
                name: container.name.clone(),
                verdict: (!container.libraries.is_empty()).then_some(verdict),
                launcher_hook: container.launcher.judge_hook(&processes, grace),
                missing_environment: container.launcher.missing_variables(&processes, grace),
                trainer: TrainerVerdict::of(processes.iter().filter_map(|process| process.training.as_ref())),
                image: None,
                ld_so_preload: processes.first().and_then(|process| ld_so_preload_problem(proc, process.pid)),
            }
        });
        PodVerdict {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            containers: containers.collect(),
            discovery: pod.discovery.clone(),
        }
    });
    Ok(verdicts.collect())
}

fn ld_so_preload_problem(proc: &Path, pid: i32) -> Option<String> {
    let root = HostRoot::open(&proc.join(pid.to_string()).join("root")).ok()?;
    ld_so_preload(&root).err().map(|error| error.to_string())
}
