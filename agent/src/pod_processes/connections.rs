//! Connections to MindIO's controller.

use std::collections::HashSet;
use std::path::Path;

use procfs::ProcResult;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};

use super::Member;

/// The number of established connections of a Pod from or to one of `ports`; `None` if they can't be read.
///
/// Under hostNetwork the table lists the connections of the whole node, so the owners of sockets are compared.
pub(super) fn established(proc: &Path, members: &[Member], ports: &[u16]) -> Option<usize> {
    let first = members.first();
    // All containers have ended, and their connections with them.
    let Some(first) = first else { return Some(0) };
    let tables = [first.process.tcp(), first.process.tcp6()];
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
    if !inodes.is_empty() && is_host_network(proc, &first.process) {
        let own = sockets(members)?;
        inodes.retain(|inode| own.contains(inode));
    }
    Some(inodes.len())
}

fn is_host_network(proc: &Path, process: &Process) -> bool {
    let namespace = |folder: &Path| std::fs::read_link(folder.join("ns/net")).ok();
    let host = namespace(&proc.join("1"));
    host.is_some() && host == namespace(&proc.join(process.pid().to_string()))
}

/// The inodes of the sockets that `members` hold.
fn sockets(members: &[Member]) -> Option<HashSet<u64>> {
    let held = members.iter().map(|member| -> ProcResult<Vec<u64>> {
        let files = member.process.fd()?.flatten();
        Ok(files
            .filter_map(|file| if let FDTarget::Socket(inode) = file.target { Some(inode) } else { None })
            .collect())
    });
    let held: Vec<Vec<u64>> = held.flatten().collect();
    (!held.is_empty()).then(|| held.into_iter().flatten().collect())
}
