//! Connections to MindIO's controller.

use std::collections::BTreeSet;
use std::path::Path;

use procfs::ProcError;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};

use super::open;

/// The established connections of a Pod from or to one of `ports`, by the inodes of their sockets; `None` if they can't be
/// read.
///
/// Under hostNetwork the table lists the connections of the whole node, so the owners of sockets are compared.
pub(super) fn established(proc: &Path, pids: &[i32], ports: &[u16]) -> Option<BTreeSet<u64>> {
    // The first may have ended meanwhile.
    let first = pids.iter().find_map(|pid| open(proc, *pid))?;
    let ipv6 = match first.tcp6() {
        Ok(table) => table,
        // A kernel without IPv6 has no such table. If the process has ended, the other one is missing too.
        Err(ProcError::NotFound(_)) => Vec::new(),
        Err(_) => return None,
    };
    let ipv4 = first.tcp().ok()?;
    let is_of_controller = |port: u16| ports.contains(&port);
    let mut inodes: BTreeSet<u64> = ipv4
        .into_iter()
        .chain(ipv6)
        .filter(|entry| {
            entry.state == TcpState::Established
                && (is_of_controller(entry.local_address.port())
                    || is_of_controller(entry.remote_address.port()))
        })
        .map(|entry| entry.inode)
        .collect();
    if !inodes.is_empty() && is_host_network(proc, &first)? {
        let own = sockets(proc, pids)?;
        inodes.retain(|inode| own.contains(inode));
    }
    Some(inodes)
}

/// Whether a process has the host's network; `None` if that can't be read.
fn is_host_network(proc: &Path, process: &Process) -> Option<bool> {
    let namespace = |folder: String| std::fs::read_link(proc.join(folder).join("ns/net")).ok();
    Some(namespace("1".to_owned())? == namespace(process.pid().to_string())?)
}

/// The inodes of the sockets that processes hold; `None` if they can't be read of one of them.
fn sockets(proc: &Path, pids: &[i32]) -> Option<BTreeSet<u64>> {
    let mut held = BTreeSet::new();
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
        held.extend(sockets);
    }
    Some(held)
}
