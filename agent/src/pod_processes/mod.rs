//! The processes of Pods that use NPUs: their connections to MindIO's controller, the folders in which they save, and the
//! rank on a lost device.
//!
//! All is read from the host's procfs. Connections of a Pod with its own network need no rights; open files, environment
//! and root of other users' processes need SYS_PTRACE and DAC_READ_SEARCH, and ending a process needs KILL and the host's
//! PID namespace.

mod checkpoint;
mod connections;
mod end;
mod inspect;
mod observer;

use std::path::{Path, PathBuf};

use procfs::process::Process;

pub use self::observer::ActivityObserver;
use crate::host::cgroup;

/// The processes below a procfs.
#[derive(Debug, Clone)]
pub struct PodProcesses {
    proc: PathBuf,
}

/// A process of a Pod.
struct Member {
    process: Process,
    /// The id of its container; `None` outside of containers.
    container: Option<String>,
}

impl PodProcesses {
    /// The processes below `proc`, the host's procfs.
    pub const fn new(proc: PathBuf) -> Self {
        Self { proc }
    }
}

/// Calls `add` with every process of a Pod and the UID of that Pod.
fn for_each_member(proc: &Path, mut add: impl FnMut(String, Member)) -> std::io::Result<()> {
    for entry in std::fs::read_dir(proc)? {
        let Ok(entry) = entry else { continue };
        if !entry.file_name().to_str().is_some_and(|name| name.bytes().all(|c| c.is_ascii_digit())) {
            continue;
        }
        // Processes end at any time.
        let Ok(process) = Process::new_with_root(entry.path()) else { continue };
        let Ok(Some(path)) = cgroup::of(&process) else { continue };
        add(path.pod, Member { process, container: path.container });
    }
    Ok(())
}
