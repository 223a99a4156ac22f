//! Is the preload live in the pods of this node?
//!
//! A wrong path in LD_PRELOAD gives a line of the loader and nothing else; TaskD misses its library at the fault, when
//! it is too late. So the processes are looked at, minutes after their start:
//!
//! ```text
//! Pods → expected libraries ┐
//! procfs → cgroup → process ┴→ observed → verdict → settled
//! ```

pub mod cgroup;
mod observe;
mod pod;
mod settle;
mod verdict;
mod why;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

pub use self::observe::ScanError;
pub use self::pod::{InjectedContainer, InjectedPod, PodError};
pub use self::settle::Settler;
pub use self::verdict::{
    Environment, FileFact, Library, MOST_SHORTFALLS, Observed, Outcome, Role, Shortfall, Verdict, judge,
};
pub use self::why::{Kind, Why};
use crate::elf::Machine;

/// The verdicts on a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodVerdict {
    /// The pod's UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its containers, in the order in which they were asked about.
    pub containers: Vec<ContainerVerdict>,
}

/// The verdict on a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerVerdict {
    /// Its name.
    pub name: String,
    /// How it stands.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Looks at the processes of `pods` once, below `proc`. Processes younger than `grace` aren't judged.
///
/// It follows paths in the roots of containers: on a file system of theirs that hangs, it hangs too. Run it where
/// that is noticed.
///
/// # Errors
///
/// When `proc` is no procfs. What single processes hide is a verdict.
pub fn scan(
    proc: &Path,
    pods: &[InjectedPod],
    grace: Duration,
    machine: Machine,
) -> Result<Vec<PodVerdict>, ScanError> {
    let mut seen = observe::observe(proc, pods, machine)?;
    let verdicts = pods.iter().enumerate().map(|(p, pod)| {
        let containers = pod.containers.iter().enumerate().map(|(c, container)| {
            let verdict = match &container.id {
                None => verdict::unknown(Why::NotStarted),
                Some(_) => judge(&seen.remove(&(p, c)).unwrap_or_default(), grace),
            };
            ContainerVerdict { name: container.name.clone(), verdict }
        });
        PodVerdict {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            containers: containers.collect(),
        }
    });
    Ok(verdicts.collect())
}
