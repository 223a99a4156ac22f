//! The TCP sockets of Pods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use procfs::ProcError;
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process};

use super::open;

/// The established connections of a Pod from or to one of `ports`, by the inodes of their sockets; `None` if they can't be
/// read.
pub(super) fn established(proc: &Path, pids: &[i32], ports: &[u16]) -> Option<BTreeSet<u64>> {
    let is_of_controller = |entry: &TcpNetEntry| {
        entry.state == TcpState::Established
            && (ports.contains(&entry.local_address.port()) || ports.contains(&entry.remote_address.port()))
    };
    let sockets = sockets(proc, pids, is_of_controller)?;
    Some(sockets.into_iter().map(|entry| entry.inode).collect())
}

/// The sockets of a Pod that are `wanted`; `None` if they can't be read.
///
/// Under hostNetwork the table lists the sockets of the whole node, so their owners are compared.
pub(super) fn sockets(
    proc: &Path,
    pids: &[i32],
    wanted: impl Fn(&TcpNetEntry) -> bool,
) -> Option<Vec<TcpNetEntry>> {
    // The first may have ended meanwhile.
    let first = pids.iter().find_map(|pid| open(proc, *pid))?;
    let ipv6 = match first.tcp6() {
        Ok(table) => table,
        // A kernel without IPv6 has no such table. If the process has ended, the other one is missing too.
        Err(ProcError::NotFound(_)) => Vec::new(),
        Err(_) => return None,
    };
    let ipv4 = first.tcp().ok()?;
    let mut found: Vec<TcpNetEntry> = ipv4.into_iter().chain(ipv6).filter(wanted).collect();
    if !found.is_empty() && is_host_network(proc, &first)? {
        let owners = owners(proc, pids)?;
        found.retain(|entry| owners.contains_key(&entry.inode));
    }
    Some(found)
}

/// Whether a process has the host's network; `None` if that can't be read.
fn is_host_network(proc: &Path, process: &Process) -> Option<bool> {
    let namespace = |folder: String| std::fs::read_link(proc.join(folder).join("ns/net")).ok();
    Some(namespace("1".to_owned())? == namespace(process.pid().to_string())?)
}

/// The process that holds each socket, by the socket's inode; `None` if that can't be read of one of the processes.
pub(super) fn owners(proc: &Path, pids: &[i32]) -> Option<BTreeMap<u64, i32>> {
    let mut held = BTreeMap::new();
    for process in pids.iter().filter_map(|pid| open(proc, *pid)) {
        let files = match process.fd() {
            Ok(files) => files,
            // It has ended.
            Err(ProcError::NotFound(_)) => continue,
            Err(_) => return None,
        };
        let sockets = files.flatten().filter_map(|file| match file.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        });
        held.extend(sockets.map(|inode| (inode, process.pid())));
    }
    Some(held)
}
