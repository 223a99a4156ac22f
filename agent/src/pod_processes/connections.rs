//! Connections to MindIO's controller.

use std::collections::HashSet;
use std::path::Path;

use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};

use super::open;

/// The number of established connections of a Pod from or to one of `ports`; `None` if they can't be read.
///
/// Under hostNetwork the table lists the connections of the whole node, so the owners of sockets are compared.
pub(super) fn established(proc: &Path, pids: &[i32], ports: &[u16]) -> Option<usize> {
    // The first may have ended meanwhile.
    let first = pids.iter().find_map(|pid| open(proc, *pid))?;
    let tables = [first.tcp(), first.tcp6()];
    if tables.iter().all(Result::is_err) {
        return None;
    }
    let is_of_controller = |port: u16| ports.contains(&port);
    let mut inodes: Vec<u64> = tables
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            entry.state == TcpState::Established
                && (is_of_controller(entry.local_address.port())
                    || is_of_controller(entry.remote_address.port()))
        })
        .map(|entry| entry.inode)
        .collect();
    if !inodes.is_empty() && is_host_network(proc, &first) {
        let own = sockets(proc, pids)?;
        inodes.retain(|inode| own.contains(inode));
    }
    Some(inodes.len())
}

fn is_host_network(proc: &Path, process: &Process) -> bool {
    let namespace = |folder: &Path| std::fs::read_link(folder.join("ns/net")).ok();
    let host = namespace(&proc.join("1"));
    host.is_some() && host == namespace(&proc.join(process.pid().to_string()))
}

/// The inodes of the sockets that processes hold; `None` if none of them can be read.
fn sockets(proc: &Path, pids: &[i32]) -> Option<HashSet<u64>> {
    let mut held = None;
    for process in pids.iter().filter_map(|pid| open(proc, *pid)) {
        let Ok(files) = process.fd() else { continue };
        let sockets = files.flatten().filter_map(|file| match file.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        });
        held.get_or_insert_with(HashSet::new).extend(sockets);
    }
    held
}
