//! The processes of Pods that use NPUs: their connections to MindIO's controller, the folders in which they save, and the
//! rank on a lost device.
//!
//! All is read from the host's procfs. Namespaces, open files, environment and root of other users' processes need
//! SYS_PTRACE and DAC_READ_SEARCH, and ending a process needs KILL and the host's PID namespace.

mod checkpoint;
mod connections;
mod end;
mod inspect;
mod observer;
mod status;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use procfs::process::Process;

pub use self::observer::ActivityObserver;
use crate::host::cgroup::{self, CgroupPath};

/// The processes below a procfs.
#[derive(Debug, Clone)]
pub struct PodProcesses {
    proc: PathBuf,
}

impl PodProcesses {
    /// The processes below `proc`, the host's procfs.
    pub const fn new(proc: PathBuf) -> Self {
        Self { proc }
    }

    /// The ids of the processes of each Pod, by its UID.
    fn members(&self) -> std::io::Result<BTreeMap<String, Vec<i32>>> {
        let mut members: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for_each_member(&self.proc, |path, process| {
            members.entry(path.pod).or_default().push(process.pid());
        })?;
        Ok(members)
    }
}

/// Calls `add` with every process in the control group of a Pod.
fn for_each_member(proc: &Path, mut add: impl FnMut(CgroupPath, Process)) -> std::io::Result<()> {
    for entry in std::fs::read_dir(proc)? {
        let Ok(entry) = entry else { continue };
        if !entry.file_name().to_str().is_some_and(|name| name.bytes().all(|c| c.is_ascii_digit())) {
            continue;
        }
        // Processes end at any time.
        let Ok(process) = Process::new_with_root(entry.path()) else { continue };
        let Ok(Some(path)) = cgroup::of(&process) else { continue };
        add(path, process);
    }
    Ok(())
}

/// A process, unless it has ended. An open one keeps a descriptor, so that lists are of ids.
fn open(proc: &Path, pid: i32) -> Option<Process> {
    Process::new_with_root(proc.join(pid.to_string())).ok()
}
