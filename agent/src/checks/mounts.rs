//! Mounts of folders that were deleted on the host.
//!
//! If a folder has its own mount and is replaced on the host (the driver's, at an upgrade), the agent's container keeps
//! showing the deleted one, and all checks would examine that.

use std::path::{Path, PathBuf};

use procfs::process::MountInfo;

use crate::finding::{Finding, Reason};

/// The kernel's mark in `mountinfo` for a deleted root of a mount (`show_mountinfo` in fs/proc_namespace.c).
const DELETED: &str = "//deleted";

/// The mounts of deleted folders below `host_root`, as paths inside it.
pub(super) fn stale(mounts: impl IntoIterator<Item = MountInfo>, host_root: &Path) -> Vec<PathBuf> {
    let stale = mounts.into_iter().filter(|mount| mount.root.ends_with(DELETED));
    stale
        .filter_map(|mount| Some(Path::new("/").join(mount.mount_point.strip_prefix(host_root).ok()?)))
        .collect()
}

/// A failing finding if `path` is in a stale mount or contains one.
pub(super) fn check(path: &str, stale: &[PathBuf]) -> Option<Finding> {
    let overlaps = |mount: &&PathBuf| Path::new(path).starts_with(mount) || mount.starts_with(path);
    stale.iter().find(overlaps).map(|mount| {
        let message = format!(
            "{} was replaced on the host, and this container still shows the deleted folder; restart the agent's Pod and the other Pods that mount it",
            mount.display()
        );
        Finding::at(mount, Reason::MountStale, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_root_is_a_stale_mount() {
        let lines = [
            "36 35 98:0 / /host rw,noatime master:1 - ext4 /dev/root rw",
            "37 35 98:0 /usr/local/Ascend/driver//deleted /host/usr/local/Ascend/driver ro - ext4 /dev/root rw",
            "38 35 98:0 /x//deleted /elsewhere ro - ext4 /dev/root rw",
        ];
        let mounts = lines.map(|line| MountInfo::from_line(line).expect(line));
        let stale = stale(mounts, Path::new("/host"));
        assert_eq!(stale, [Path::new("/usr/local/Ascend/driver")]);
        assert_eq!(
            check("/usr/local/Ascend/driver", &stale).map(|finding| finding.reason),
            Some(Reason::MountStale)
        );
        assert_eq!(
            check("/usr/local/Ascend", &stale).map(|finding| finding.reason),
            Some(Reason::MountStale)
        );
        assert_eq!(check("/usr/local/Ascend/driver2", &stale), None);
    }
}
