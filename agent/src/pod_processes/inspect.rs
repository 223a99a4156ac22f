//! What the processes of a Pod have open, and what their environment says.

use std::io::Read as _;

use procfs::process::{FDTarget, Process};
use procfs::{ProcError, ProcResult};
use swansong_api::launcher_hook::MODULE_FILE;
use swansong_fault_model::rank_process::{PodProcess, RankEnvironment};
use swansong_faults::NpuPod;

use super::{PodProcesses, for_each_member};
use crate::host::variable;

/// The kernel limits the initial environment to a quarter of the stack limit.
const MAX_ENVIRONMENT: u64 = 8 << 20;

impl PodProcesses {
    /// The processes of `pod`. A process that ends meanwhile is left out.
    ///
    /// # Errors
    ///
    /// When one of them can't be inspected: without it nothing is certain.
    pub(super) fn inspect(&self, pod: &NpuPod) -> Result<Vec<PodProcess>, String> {
        let mut processes = Vec::new();
        let mut failed = None;
        let listed = for_each_member(&self.proc, |path, process| {
            if !path.pod.eq_ignore_ascii_case(&pod.reference.uid) {
                return;
            }
            let is_training = path.container.is_some() && path.container == pod.dump.container_id;
            match inspect(&process, is_training) {
                Ok(process) => processes.extend(process),
                Err(ProcError::NotFound(_)) => {}
                Err(error) => failed = Some(format!("process {}: {error}", process.pid())),
            }
        });
        listed.map_err(|error| format!("{}: {error}", self.proc.display()))?;
        failed.map_or(Ok(processes), Err)
    }
}

fn inspect(process: &Process, is_training: bool) -> ProcResult<Option<PodProcess>> {
    let stat = process.stat()?;
    if matches!(stat.state, 'Z' | 'X' | 'x') {
        return Ok(None);
    }
    let mut found = PodProcess {
        pid: stat.pid,
        parent: stat.ppid,
        started: stat.starttime,
        is_training,
        ..PodProcess::default()
    };
    if found.is_training {
        for file in process.fd()? {
            let Ok(FDTarget::Path(path)) = file.map(|file| file.target) else { continue };
            let name = path.to_string_lossy();
            let name = name.trim_end_matches(" (deleted)");
            found.has_hook |= name.ends_with(MODULE_FILE);
            found
                .devices
                .extend(name.strip_prefix("/dev/davinci").and_then(|number| number.parse::<u32>().ok()));
        }
        found.environment = environment(process)?;
    }
    Ok(Some(found))
}

fn environment(process: &Process) -> ProcResult<RankEnvironment> {
    let bytes = read_environment(process)?;
    let value = |name: &str| variable(&bytes, name);
    let list = |name: &str| Some(devices(value(name)?.as_str()));
    Ok(RankEnvironment {
        rank: value("RANK").and_then(|rank| rank.parse().ok()),
        local_rank: value("LOCAL_RANK").and_then(|rank| rank.parse().ok()),
        visible: list("ASCEND_VISIBLE_DEVICES"),
        runtime_visible: list("ASCEND_RT_VISIBLE_DEVICES"),
    })
}

/// The content of a process's `environ`.
pub(super) fn read_environment(process: &Process) -> ProcResult<Vec<u8>> {
    let mut bytes = Vec::new();
    process.open_relative("environ")?.take(MAX_ENVIRONMENT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// `0,1,3`, `0-3`, `Ascend910-0,Ascend910-1`. What can't be read isn't in the list.
fn devices(text: &str) -> Vec<u32> {
    let mut devices = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('-') {
            None => devices.extend(part.parse::<u32>()),
            Some((first, last)) => match (first.parse::<u32>(), last.parse::<u32>()) {
                (Ok(first), Ok(last)) => devices.extend(first..=last.min(first + 64)),
                (Err(_), Ok(number)) => devices.push(number),
                _ => {}
            },
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_lists_ranges_or_names() {
        for (text, expected) in [
            ("3", &[3][..]),
            ("0, 1,3", &[0, 1, 3]),
            ("0-2", &[0, 1, 2]),
            ("Ascend910-4,Ascend910-5", &[4, 5]),
            ("", &[]),
            ("all", &[]),
        ] {
            assert_eq!(devices(text), expected, "{text}");
        }
    }
}
