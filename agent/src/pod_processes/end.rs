//! Ends the rank on a lost device.

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use swansong_fault_model::rank_process::{NoRankEnded, rank_process};
use swansong_faults::{NpuPod, Processes};

use super::PodProcesses;

impl Processes for PodProcesses {
    fn end_rank(&self, pod: &NpuPod, npu: u32) -> Result<i32, NoRankEnded> {
        self.check_namespace()?;
        let processes = self.inspect(pod).map_err(NoRankEnded::NotInspected)?;
        let rank = rank_process(npu, pod.ranks(), &processes)?;
        let failed = |why: String| NoRankEnded::NotEnded { pid: rank.pid, why };
        let pid = Pid::from_raw(rank.pid).ok_or_else(|| failed("it has no id".to_owned()))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.to_string()))?;
        // From here on the descriptor names one process, so that the second inspection is of the one that is ended.
        let processes = self.inspect(pod).map_err(NoRankEnded::NotInspected)?;
        if rank_process(npu, pod.ranks(), &processes)? != rank {
            return Err(failed("it changed during the inspection".to_owned()));
        }
        pidfd_send_signal(&pidfd, Signal::KILL).map_err(|error| failed(error.to_string()))?;
        Ok(rank.pid)
    }
}

impl PodProcesses {
    /// Ids below `proc` have to mean the same to this process.
    fn check_namespace(&self) -> Result<(), NoRankEnded> {
        let namespace =
            |path| fs::read_link(path).map_err(|error| NoRankEnded::NotInspected(error.to_string()));
        if namespace(self.proc.join("1/ns/pid"))? == namespace("/proc/self/ns/pid".into())? {
            return Ok(());
        }
        let why = "the agent isn't in the host's PID namespace; install it by the overlay agent-fast-dump";
        Err(NoRankEnded::NotInspected(why.to_owned()))
    }
}
