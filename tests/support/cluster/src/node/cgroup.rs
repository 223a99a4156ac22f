//! The control groups that a node's pods live in.
//!
//! They are the one thing of a node that no namespace removes: one group of the cluster's name in
//! each hierarchy, below which the kubelet makes its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::wait::eventually_blocking;

/// The kernel keeps a group busy until its last process is wholly gone.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the group in every hierarchy.
pub(crate) fn create(name: &str) -> Result<(), Error> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(name);
        match fs::create_dir(&group) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::file("create", &group)(error)),
        }
        // A new group of the cpuset hierarchy may use no processor until it is configured.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if group.join(file).exists()
                && let Ok(value) = fs::read(hierarchy.join(file))
            {
                let path = group.join(file);
                fs::write(&path, value).map_err(Error::file("write", &path))?;
            }
        }
    }
    Ok(())
}

/// Removes the group and all below it.
pub(crate) fn remove(name: &str) -> Result<(), Error> {
    for hierarchy in hierarchies()? {
        let group = hierarchy.join(name);
        eventually_blocking(&format!("{} is removed", group.display()), TIMEOUT, || remove_tree(&group))?;
    }
    Ok(())
}

/// Groups are removed as folders, innermost first; the files in them go along.
fn remove_tree(group: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Mount points of all hierarchies, version 1 and 2.
fn hierarchies() -> Result<Vec<PathBuf>, Error> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(Error::io("read /proc/self/mounts"))?;
    Ok(parse(&mounts))
}

fn parse(mounts: &str) -> Vec<PathBuf> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (point, kind) = (fields.nth(1)?, fields.next()?);
            matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(point))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = parse(mounts);
        assert_eq!(found, ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified"].map(PathBuf::from));
    }

    #[test]
    fn a_tree_is_removed_innermost_first() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a");
        fs::create_dir_all(group.join("b/c")).unwrap();
        remove_tree(&group).unwrap();
        assert!(!group.exists());
        remove_tree(&group).unwrap();
    }
}
