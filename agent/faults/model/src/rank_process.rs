//! Which process of a Pod is the rank on a lost device. Pure; anything that isn't certain is a refusal.

use std::collections::BTreeSet;

/// A process of a Pod, at the time of an inspection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodProcess {
    /// Its id in the host's namespace.
    pub pid: i32,
    /// The id of its parent.
    pub parent: i32,
    /// Its start time in clock ticks after boot. With the id it names a process that no other can be taken for.
    pub started: u64,
    /// Whether it belongs to the training container.
    pub is_training: bool,
    /// Whether the launcher hook is active in it.
    pub has_hook: bool,
    /// The numbers of the device files that it has open, `/dev/davinciN`.
    pub devices: BTreeSet<u32>,
    /// What its environment says.
    pub environment: RankEnvironment,
}

/// The part of a process's environment that names its rank and devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankEnvironment {
    pub rank: Option<u32>,
    pub local_rank: Option<u32>,
    /// `ASCEND_VISIBLE_DEVICES`, physical ids.
    pub visible: Option<Vec<u32>>,
    /// `ASCEND_RT_VISIBLE_DEVICES`, places in the container's list of devices.
    pub runtime_visible: Option<Vec<u32>>,
}

/// What the Pod's annotations say.
#[derive(Debug, Clone, Copy)]
pub struct PodRanks<'a> {
    /// The physical ids of its devices.
    pub devices: &'a [u32],
    /// Its rank in the job.
    pub rank: Option<u32>,
}

/// Why no process is ended. The names are label values of metrics and in the documentation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum NoRankEnded {
    /// The Pod doesn't carry the launcher hook.
    #[error(
        "the Pod has no launcher hook, so that the surviving ranks of this node would be ended while they save"
    )]
    NoHook,
    /// No launcher has loaded the hook.
    #[error(
        "the launcher hook isn't active in the Pod's launcher, so that nothing protects the surviving ranks of this node"
    )]
    HookNotActive,
    /// The processes can't be inspected.
    #[error("the processes of the Pod can't be inspected: {0}")]
    NotInspected(String),
    /// No process has the device open.
    #[error("no process of the Pod's training container has /dev/davinci{0} open")]
    NoProcess(u32),
    /// Several unrelated processes have it open.
    #[error("several processes have /dev/davinci{device} open: {pids:?}")]
    SeveralProcesses { device: u32, pids: Vec<i32> },
    /// What says which rank it is contradicts itself.
    #[error("process {pid} has /dev/davinci{device} open, and {why}")]
    Contradiction {
        device: u32,
        pid: i32,
        /// What contradicts that it is the rank of this device.
        why: String,
    },
    /// The signal can't be sent.
    #[error("process {pid} can't be ended: {why}")]
    NotEnded {
        pid: i32,
        /// The system's error.
        why: String,
    },
}

impl NoRankEnded {
    /// Whether another attempt may succeed: a process ended or changed during the inspection.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::NotInspected(_) | Self::NotEnded { .. })
    }
}

/// The process of the rank on `device`, if the launcher hook protects the others.
///
/// # Errors
///
/// When no process, or more than one, can be it, or anything contradicts that it is.
pub fn rank_process<'a>(
    device: u32,
    pod: PodRanks<'_>,
    processes: &'a [PodProcess],
) -> Result<&'a PodProcess, NoRankEnded> {
    let training = || processes.iter().filter(|process| process.is_training);
    if !training().any(|process| process.has_hook) {
        return Err(NoRankEnded::HookNotActive);
    }
    let open: Vec<&PodProcess> = training().filter(|process| process.devices.contains(&device)).collect();
    // Workers of a data loader inherit the open files of the rank that forked them.
    let has_open_ancestor = |process: &PodProcess| {
        ancestors(process, processes).any(|ancestor| open.iter().any(|other| other.pid == ancestor.pid))
    };
    let roots: Vec<&PodProcess> =
        open.iter().copied().filter(|process| !has_open_ancestor(process)).collect();
    let process = match roots[..] {
        [] => return Err(NoRankEnded::NoProcess(device)),
        [process] => process,
        _ => {
            let pids = roots.iter().map(|process| process.pid).collect();
            return Err(NoRankEnded::SeveralProcesses { device, pids });
        }
    };
    contradiction(device, pod, process)
        .map_or(Ok(process), |why| Err(NoRankEnded::Contradiction { device, pid: process.pid, why }))
}

/// What contradicts `process` being the rank of `device`.
fn contradiction(device: u32, pod: PodRanks<'_>, process: &PodProcess) -> Option<String> {
    let RankEnvironment { rank, local_rank, visible, runtime_visible } = &process.environment;
    if process.has_hook {
        return Some("it is the launcher".to_owned());
    }
    if process.devices.len() > 1 {
        return Some(format!("also the devices {:?}", process.devices));
    }
    let (Some(rank), Some(local_rank)) = (*rank, *local_rank) else {
        return Some("its environment has no RANK and LOCAL_RANK".to_owned());
    };
    if let Some(visible) = visible
        && !visible.contains(&device)
    {
        return Some(format!("its ASCEND_VISIBLE_DEVICES lists only {visible:?}"));
    }
    let mut devices = pod.devices.to_vec();
    devices.sort_unstable();
    let nth = |list: &[u32], place: u32| list.get(usize::try_from(place).ok()?).copied();
    let place = match runtime_visible {
        Some(visible) => nth(visible, local_rank),
        None => Some(local_rank),
    };
    let expected = place.and_then(|place| nth(&devices, place));
    if expected != Some(device) {
        return Some(format!("LOCAL_RANK {local_rank} of the devices {devices:?} is another one"));
    }
    let first =
        u32::try_from(devices.len()).ok().zip(pod.rank).and_then(|(count, rank)| rank.checked_mul(count));
    match first.and_then(|first| first.checked_add(local_rank)) {
        Some(expected) if expected == rank => None,
        Some(expected) => Some(format!("its RANK is {rank} instead of {expected}")),
        None => Some("the Pod's annotation hccl/rankIndex is missing".to_owned()),
    }
}

/// The ancestors of a process among `processes`.
fn ancestors<'a>(process: &PodProcess, processes: &'a [PodProcess]) -> impl Iterator<Item = &'a PodProcess> {
    let parent = |pid: i32| processes.iter().find(|process| process.pid == pid);
    // The list isn't a snapshot, so that a reused id could form a loop.
    std::iter::successors(parent(process.parent), move |process| parent(process.parent)).take(processes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: PodRanks<'_> = PodRanks { devices: &[2, 3], rank: Some(1) };

    /// A launcher with a rank on device 2 and one on device 3, which has forked a worker.
    fn processes() -> Vec<PodProcess> {
        let rank = |pid, device, local_rank| PodProcess {
            pid,
            parent: 10,
            is_training: true,
            devices: BTreeSet::from([device]),
            environment: RankEnvironment {
                rank: Some(2 + local_rank),
                local_rank: Some(local_rank),
                visible: Some(vec![2, 3]),
                runtime_visible: None,
            },
            ..PodProcess::default()
        };
        let launcher =
            PodProcess { pid: 10, parent: 1, is_training: true, has_hook: true, ..PodProcess::default() };
        let worker = PodProcess { pid: 13, parent: 12, ..rank(13, 3, 1) };
        vec![worker, launcher, rank(11, 2, 0), rank(12, 3, 1)]
    }

    fn refusal(device: u32, pod: PodRanks<'_>, change: impl FnOnce(&mut Vec<PodProcess>)) -> &'static str {
        let mut processes = processes();
        change(&mut processes);
        rank_process(device, pod, &processes).expect_err("a refusal").into()
    }

    #[test]
    fn rank_of_the_device_is_found_and_not_the_worker_that_it_forked() {
        let processes = processes();
        for (device, pid) in [(2, 11), (3, 12)] {
            assert_eq!(rank_process(device, POD, &processes).map(|process| process.pid), Ok(pid));
        }
        let mut reordered = processes.clone();
        for (process, device) in [(2, 3), (3, 2)] {
            reordered[process].environment.runtime_visible = Some(vec![1, 0]);
            reordered[process].devices = BTreeSet::from([device]);
        }
        reordered.remove(0);
        assert_eq!(rank_process(3, POD, &reordered).map(|process| process.pid), Ok(11));
    }

    #[test]
    fn everything_that_is_not_certain_is_refused() {
        type Change = fn(&mut Vec<PodProcess>);
        let table: [(&str, u32, Change); 13] = [
            ("no_process", 5, |_| {}),
            ("hook_not_active", 3, |all| all[1].has_hook = false),
            ("hook_not_active", 3, |all| all[1].is_training = false),
            ("no_process", 2, |all| all[2].is_training = false),
            ("no_process", 2, |all| all[2].devices.clear()),
            ("several_processes", 3, |all| all[0].parent = 10),
            ("several_processes", 3, |all| all[2].devices.extend([3])),
            ("contradiction", 2, |all| all[2].devices.extend([7])),
            ("contradiction", 2, |all| all[2].environment.rank = None),
            ("contradiction", 2, |all| all[2].environment.rank = Some(0)),
            ("contradiction", 2, |all| all[2].environment.local_rank = Some(1)),
            ("contradiction", 2, |all| all[2].environment.visible = Some(vec![3])),
            ("contradiction", 2, |all| all[2].environment.runtime_visible = Some(vec![1, 0])),
        ];
        for (index, (expected, device, change)) in table.into_iter().enumerate() {
            assert_eq!(refusal(device, POD, change), expected, "row {index}");
        }
        assert_eq!(refusal(2, PodRanks { rank: None, ..POD }, |_| {}), "contradiction");
        assert_eq!(refusal(2, PodRanks { devices: &[0, 2], ..POD }, |_| {}), "contradiction");
        assert_eq!(refusal(2, POD, |all| all[2].has_hook = true), "contradiction");
    }

    #[test]
    fn loop_of_parents_ends() {
        assert_eq!(refusal(2, POD, |all| (all[1].parent, all[2].parent) = (11, 11)), "no_process");
    }
}
