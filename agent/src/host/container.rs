//! Finds a running container without its runtime.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use procfs::process::Process;

use super::cgroup;
use super::root::HostRoot;

/// Longer than a host name.
const MAX_HOSTNAME: u64 = 256;
/// Shorter beginnings of an id are no names of containers.
const MIN_PREFIX: usize = 6;

/// A process of each running container called `name`: by its id or the beginning of it, the UID of its Pod, or the host
/// name in it, which is the name of its Pod unless that has hostNetwork.
///
/// # Errors
///
/// When `proc` can't be read.
pub fn running_container(proc: &Path, name: &str) -> io::Result<Vec<i32>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(proc)? {
        let entry = entry?;
        let is_process = entry.file_name().to_str().is_some_and(|name| name.parse::<i32>().is_ok());
        if !is_process {
            continue;
        }
        let Ok(process) = Process::new_with_root(entry.path()) else { continue };
        let Ok(Some(path)) = cgroup::of(&process) else { continue };
        let Some(container) = path.container else { continue };
        let is_sandbox = process.stat().is_ok_and(|stat| stat.comm == "pause");
        if is_sandbox || found.contains_key(&container) {
            continue;
        }
        let by_id = name.len() >= MIN_PREFIX && container.starts_with(name);
        if by_id || path.pod == name || hostname(&entry.path().join("root")).as_deref() == Some(name) {
            found.insert(container, process.pid());
        }
    }
    Ok(found.into_values().collect())
}

fn hostname(root: &Path) -> Option<String> {
    let content = HostRoot::open(root).ok()?.read("/etc/hostname", MAX_HOSTNAME).ok()?;
    Some(String::from_utf8(content).ok()?.trim().to_owned())
}
