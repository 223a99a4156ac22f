//! Follows the dumps of Pods.

use std::collections::{BTreeMap, BTreeSet};

use swansong_faults::{Activity, NpuPod, Renamed};

use super::checkpoint::{CheckpointFolder, save_folder};
use super::connections::established;
use super::{PodProcesses, open};

/// How long what was seen of a Pod is kept after it has gone, in milliseconds: agents of other nodes read it.
const RETENTION: u64 = 60 * 60 * 1000;

/// Keeps what was seen of the dumps of Pods.
#[derive(Debug)]
pub struct ActivityObserver {
    processes: PodProcesses,
    activity: Activity,
    folders: BTreeMap<String, CheckpointFolder>,
    /// When each Pod was last listed.
    listed_at: BTreeMap<String, u64>,
}

impl ActivityObserver {
    /// An observer that has seen nothing.
    pub const fn new(processes: PodProcesses) -> Self {
        Self { processes, activity: Activity::new(), folders: BTreeMap::new(), listed_at: BTreeMap::new() }
    }

    /// Inspects `pods` at `now`, in milliseconds since 1970, and returns what is known of them and of earlier ones.
    ///
    /// # Errors
    ///
    /// When the procfs can't be read.
    pub fn observe(&mut self, pods: &[NpuPod], now: u64) -> std::io::Result<&Activity> {
        let mut members = self.processes.members()?;
        self.listed_at.extend(pods.iter().map(|pod| (pod.reference.uid.clone(), now)));
        for uid in self.listed_at.keys() {
            let pod = pods.iter().find(|pod| pod.reference.uid == *uid);
            let members = members.remove(uid).unwrap_or_default();
            let ports = pod.map(|pod| pod.dump.ports.as_slice()).unwrap_or_default();
            let seen = self.activity.entry(uid.clone()).or_default();
            // Of a Pod that was deleted its processes are gone as well, or end soon.
            let has_ended = pod.is_none() || members.is_empty();
            let connections = if has_ended {
                Some(BTreeSet::new())
            } else {
                established(&self.processes.proc, &members, ports)
            };
            seen.connections.record(connections.as_ref(), now);
            let folder = self.folders.entry(uid.clone()).or_default();
            if let Some(renamed) = renamed(&self.processes, &members, folder, now) {
                seen.renamed = Some(renamed);
            }
        }
        self.listed_at.retain(|_, at| now.saturating_sub(*at) < RETENTION);
        self.activity.retain(|uid, _| self.listed_at.contains_key(uid));
        self.folders.retain(|uid, _| self.listed_at.contains_key(uid));
        Ok(&self.activity)
    }
}

/// The checkpoint folder that got its final name since the last call.
fn renamed(
    processes: &PodProcesses,
    pids: &[i32],
    folder: &mut CheckpointFolder,
    now: u64,
) -> Option<Renamed> {
    let saving = pids.iter().find_map(|pid| {
        let arguments = open(&processes.proc, *pid)?.cmdline().ok()?;
        Some((*pid, save_folder(&arguments)?.to_owned()))
    });
    match saving {
        Some((pid, path)) => folder.observe(&processes.proc.join(pid.to_string()).join("root"), &path, now),
        None => folder.observe_end(now),
    }
}
