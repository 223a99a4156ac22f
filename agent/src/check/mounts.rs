//! Mounts that outlived what they show.
//!
//! A folder that is mounted by itself and then replaced on the host (the driver's, at an upgrade) stays what it was
//! inside the agent's container: all checks would look at the old one for ever.

use std::path::{Path, PathBuf};

use procfs::process::MountInfo;

use crate::reason::Reason;
use crate::report::Finding;

/// How the kernel marks, in `mountinfo`, the root of a mount that was deleted (`show_mountinfo` in fs/proc_namespace.c).
const DELETED: &str = "//deleted";

/// The mounts below `host_root` that show something deleted, as paths inside it.
pub(super) fn dead(mounts: impl IntoIterator<Item = MountInfo>, host_root: &Path) -> Vec<PathBuf> {
    let dead = mounts.into_iter().filter(|mount| mount.root.ends_with(DELETED));
    dead.filter_map(|mount| Some(Path::new("/").join(mount.mount_point.strip_prefix(host_root).ok()?)))
        .collect()
}

/// What to say if `path` is in a dead mount, or a dead mount in it.
pub(super) fn stale(path: &str, dead: &[PathBuf]) -> Option<Finding> {
    let of_it = |mount: &&PathBuf| Path::new(path).starts_with(mount) || mount.starts_with(path);
    dead.iter().find(of_it).map(|mount| {
        let message = format!(
            "{} was replaced on the host while it was mounted here, so that the old one is still seen; restart the agent's pod (and the other pods that mount it)",
            mount.display()
        );
        Finding::at(mount, Reason::MountStale, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_root_is_a_dead_mount() {
        let lines = [
            "36 35 98:0 / /host rw,noatime master:1 - ext4 /dev/root rw",
            "37 35 98:0 /usr/local/Ascend/driver//deleted /host/usr/local/Ascend/driver ro - ext4 /dev/root rw",
            "38 35 98:0 /x//deleted /elsewhere ro - ext4 /dev/root rw",
        ];
        let mounts = lines.map(|line| MountInfo::from_line(line).expect(line));
        let dead = dead(mounts, Path::new("/host"));
        assert_eq!(dead, [Path::new("/usr/local/Ascend/driver")]);
        assert_eq!(
            stale("/usr/local/Ascend/driver", &dead).map(|finding| finding.reason),
            Some(Reason::MountStale)
        );
        assert_eq!(stale("/usr/local/Ascend", &dead).map(|finding| finding.reason), Some(Reason::MountStale));
        assert_eq!(stale("/usr/local/Ascend/driver2", &dead), None);
    }
}
