//! Finds the Pod and container of a process by its control group.
//!
//! The path contains both ids in cgroup v1 and v2, for the kubelet's drivers `cgroupfs` and `systemd`
//! (`pkg/kubelet/cm/cgroup_manager_linux.go`: `kubepods/burstable/pod<uid>` and
//! `kubepods-burstable-pod<uid>.slice` with underscores), and containerd (`cri-containerd-<id>.scope`), CRI-O
//! (`crio-<id>.scope`) and Docker (`docker-<id>.scope`). In another cgroup namespace the path starts with `/../..`; the
//! Pod's part remains.

use std::io::Read as _;

use procfs::ProcResult;
use procfs::process::Process;

/// The file has a line per hierarchy, of which v1 has at most a dozen.
const MAX_SIZE: u64 = 64 << 10;

/// CRI-O's monitor is in the Pod's group but in none of its containers.
const MONITOR: &str = "crio-conmon-";

/// Container ids are longer than this, other hexadecimal path components are shorter.
const MIN_ID_LENGTH: usize = 12;

/// The Pod and container of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupPath {
    /// The pod's UID, with hyphens.
    pub pod: String,
    /// The container's id; `None` if the process is in the Pod's group but in none of its containers.
    pub container: Option<String>,
}

/// Reads the control group of a process; `None` outside of Pods.
///
/// # Errors
///
/// When the process has ended or can't be read.
pub fn of(process: &Process) -> ProcResult<Option<CgroupPath>> {
    let mut content = Vec::with_capacity(256);
    process.open_relative("cgroup")?.take(MAX_SIZE).read_to_end(&mut content)?;
    Ok(parse(&content))
}

/// Parses the content of `/proc/PID/cgroup`.
pub fn parse(content: &[u8]) -> Option<CgroupPath> {
    let mut found: Option<CgroupPath> = None;
    for line in content.split(|&c| c == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        // hierarchy:controllers:path, and the path may hold further colons.
        let Some(path) = line.splitn(3, ':').nth(2) else { continue };
        match cgroup_path(path) {
            Some(path) if path.container.is_some() => return Some(path),
            Some(path) => found = found.or(Some(path)),
            None => {}
        }
    }
    found
}

fn cgroup_path(path: &str) -> Option<CgroupPath> {
    let mut components = path.split('/');
    let (pod, rest) = components.by_ref().find_map(pod)?;
    let container = if rest.is_empty() { components.next().and_then(container) } else { container(rest) };
    Some(CgroupPath { pod, container })
}

/// The Pod's UID in a component, and the rest of the component: `:cri-containerd:<id>` if containerd's own cgroup driver
/// made the group, else nothing.
fn pod(component: &str) -> Option<(String, &str)> {
    component.match_indices("pod").find_map(|(at, word)| {
        if at > 0 && !component[..at].ends_with('-') {
            return None;
        }
        let (uid, rest) = uid(&component[at + word.len()..])?;
        let rest = rest.strip_prefix(".slice").unwrap_or(rest);
        (rest.is_empty() || rest.starts_with(':')).then_some((uid, rest))
    })
}

/// A UUID with hyphens or underscores. The UID of a static Pod has neither.
fn uid(text: &str) -> Option<(String, &str)> {
    let separated = |length: usize, separators: &[usize]| {
        let candidate = text.get(..length)?;
        let sound = candidate.bytes().enumerate().all(|(at, c)| {
            if separators.contains(&at) { matches!(c, b'-' | b'_') } else { c.is_ascii_hexdigit() }
        });
        sound.then(|| (candidate.replace('_', "-"), &text[length..]))
    };
    separated(36, &[8, 13, 18, 23]).or_else(|| separated(32, &[]))
}

fn container(component: &str) -> Option<String> {
    if component.starts_with(MONITOR) {
        return None;
    }
    let name = component.strip_suffix(".scope").unwrap_or(component);
    let id = name.rsplit([':', '-']).next()?;
    let sound = id.len() >= MIN_ID_LENGTH && id.bytes().all(|c| c.is_ascii_hexdigit());
    sound.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00";
    const ID: &str = "5a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef";

    #[test]
    fn parses_paths_of_every_runtime_and_driver() {
        let under = UID.replace('-', "_");
        for (name, content) in [
            (
                "v2 systemd containerd",
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-{ID}.scope\n"
                ),
            ),
            (
                "v2 systemd CRI-O",
                format!(
                    "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{under}.slice/crio-{ID}.scope\n"
                ),
            ),
            (
                "v2 systemd CRI-O with a nested group",
                format!("0::/kubepods.slice/kubepods-pod{under}.slice/crio-{ID}.scope/container\n"),
            ),
            (
                "v2 systemd docker, guaranteed",
                format!("0::/kubepods.slice/kubepods-pod{under}.slice/docker-{ID}.scope\n"),
            ),
            ("v2 cgroupfs containerd", format!("0::/kubepods/burstable/pod{UID}/{ID}\n")),
            ("v2 cgroupfs CRI-O", format!("0::/kubepods/burstable/pod{UID}/crio-{ID}\n")),
            ("v2 cgroupfs, guaranteed", format!("0::/kubepods/pod{UID}/{ID}\n")),
            ("v2 below the container", format!("0::/kubepods/burstable/pod{UID}/{ID}/init.scope\n")),
            (
                "v2 kind",
                format!(
                    "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{under}.slice/cri-containerd-{ID}.scope\n"
                ),
            ),
            ("v2 nested in docker", format!("0::/docker/{ID}/kubelet/kubepods/besteffort/pod{UID}/{ID}\n")),
            (
                "v2 from a cgroup namespace, systemd",
                format!("0::/../../kubepods-burstable-pod{under}.slice/cri-containerd-{ID}.scope\n"),
            ),
            ("v2 from a cgroup namespace, cgroupfs", format!("0::/../../pod{UID}/{ID}\n")),
            (
                "v1 cgroupfs",
                format!(
                    "12:pids:/kubepods/burstable/pod{UID}/{ID}\n11:cpu,cpuacct:/kubepods/burstable/pod{UID}/{ID}\n1:name=systemd:/kubepods/burstable/pod{UID}/{ID}\n0::/system.slice/containerd.service\n"
                ),
            ),
            (
                "v1 systemd",
                format!(
                    "11:memory:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/docker-{ID}.scope\n"
                ),
            ),
            (
                "v1 containerd without the systemd driver",
                format!(
                    "3:cpu:/system.slice/containerd.service/kubepods-burstable-pod{under}.slice:cri-containerd:{ID}\n"
                ),
            ),
            (
                "v1, only some hierarchies",
                format!("12:rdma:/\n11:pids:/kubepods/pod{UID}\n10:cpu:/kubepods/pod{UID}/{ID}\n"),
            ),
        ] {
            let path = parse(content.as_bytes()).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(path, CgroupPath { pod: UID.to_owned(), container: Some(ID.to_owned()) }, "{name}");
        }
    }

    #[test]
    fn parses_processes_of_a_pod_outside_of_containers() {
        for content in [
            format!("0::/kubepods/burstable/pod{UID}\n"),
            format!("0::/kubepods/burstable/pod{UID}/crio-conmon-{ID}\n"),
            format!("0::/kubepods.slice/kubepods-pod{}.slice\n", UID.replace('-', "_")),
        ] {
            assert_eq!(
                parse(content.as_bytes()),
                Some(CgroupPath { pod: UID.to_owned(), container: None }),
                "{content}"
            );
        }
    }

    #[test]
    fn parses_uids_of_static_pods() {
        let uid = UID.replace('-', "");
        let path = parse(format!("0::/kubepods/burstable/pod{uid}/{ID}").as_bytes()).expect("a pod");
        assert_eq!(path.pod, uid);
    }

    #[test]
    fn ignores_processes_outside_of_pods() {
        for content in [
            "",
            "0::/",
            "0::/system.slice/containerd.service",
            "0::/user.slice/user-0.slice/session-1.scope",
            "0::/kubepods.slice/kubepods-burstable.slice",
            "0::/kubepods/podcast/5a0b6c2d3e4f5061",
            "0::/machine.slice/libpod-5a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef.scope",
            "pod",
            "a:b:pod",
            "0::/xpod0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00/5a0b6c2d3e4f5061",
            "0::/pod0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00.mount/5a0b6c2d3e4f5061",
        ] {
            assert_eq!(parse(content.as_bytes()), None, "{content}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            parse(&content);
        }

        #[test]
        fn arbitrary_paths_do_not_panic(path in "(/|pod|kube|[0-9a-f]{1,40}|-|_|:|\\.slice|\\.scope|é){0,20}") {
            parse(format!("0::{path}").as_bytes());
        }
    }
}
