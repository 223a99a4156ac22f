//! The ports that a job with hostNetwork needs on its node: 8000 (MindIO's controller), 9601 (TaskD Manager) and 9602
//! (TaskD Proxy).
//!
//! They have to be free, and should be reserved by `net.ipv4.ip_local_reserved_ports` because a client may get one by
//! chance otherwise (MindCluster, `04_using_resumable_training_on_the_cli.md`). A Pod that uses one is a running job.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;

use procfs::net::{TcpNetEntries, TcpState};
use procfs::{FromReadSI as _, LocalSystemInfo};

use super::driver::{malformed, not_mounted};
use super::port_owners::{PortOwner, PortOwners};
use crate::finding::{Finding, Reason};
use crate::host::{Entry, HostRoot, PathError};

/// The network of the host's first process; `/proc/net` is that of the agent.
const TABLES: [&str; 2] = ["/proc/1/net/tcp", "/proc/1/net/tcp6"];

const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// A list of all ports has 400 kB.
const MAX_SIZE: u64 = 1 << 20;

/// Whether the ports are free.
pub(super) fn check(root: &HostRoot, ports: &[u16], owners: &PortOwners) -> Finding {
    let mut sockets = BTreeMap::new();
    for (index, table) in TABLES.into_iter().enumerate() {
        match root.resolve(table) {
            Ok(table_file) => match sockets_on(&table_file, table, ports) {
                Ok(found) => sockets.extend(found),
                Err(finding) => return finding,
            },
            // There is no second table without IPv6.
            Err(PathError::Missing) if index > 0 => {}
            Err(error) => return not_mounted(root, table, &error),
        }
    }
    let owners = owners.of(root, &sockets);
    let find = |wanted: fn(&PortOwner) -> bool| owners.iter().find(|(_, owner)| wanted(owner));
    if let Some((port, PortOwner::Process { pid, name })) =
        find(|owner| matches!(owner, PortOwner::Process { .. }))
    {
        let message = format!(
            "process {pid} ({name}) uses port {port}, which jobs with hostNetwork need; move it to another port"
        );
        return Finding::at(TABLES[0], Reason::PortInUse, message).about([port]);
    }
    if let Some((port, _)) = find(|owner| *owner == PortOwner::Unknown) {
        let message = format!(
            "port {port} is used by a process that the agent has no permission to see; run `ss -anp sport = :{port}` on the node"
        );
        return Finding::at(TABLES[0], Reason::PortOwnerUnknown, message).about([port]);
    }
    if !owners.is_empty() {
        return Finding::at(TABLES[0], Reason::PortsUsedByPods, "only Pods use ports of the list");
    }
    let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match reserved(root) {
        Some(reserved) if ports.iter().all(|&port| contains(&reserved, port)) => {
            Finding::at(RESERVED, Reason::PortsReserved, format!("{list} are free and reserved"))
        }
        _ => {
            let message = format!(
                "{list} are free; add those within ip_local_port_range to net.ipv4.ip_local_reserved_ports, or a client may get one by chance"
            );
            Finding::at(TABLES[0], Reason::PortsFree, message)
        }
    }
}

/// The ports of the sockets on `ports`, by inode. Other lines of the table, which may be long, aren't kept in memory.
fn sockets_on(entry: &Entry, table: &str, ports: &[u16]) -> Result<BTreeMap<u64, u16>, Finding> {
    let unreadable = |error: PathError| {
        Finding::at(
            table,
            Reason::NotReadable,
            format!("{table} can't be read: {error}; let the agent read it"),
        )
    };
    let file = entry.open().map_err(unreadable)?;
    let endings: Vec<String> = ports.iter().map(|port| format!(":{port:04X}")).collect();
    let mut kept = Vec::new();
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| unreadable(error.into()))?;
        let text = String::from_utf8_lossy(&line);
        let local = text.split_ascii_whitespace().nth(1);
        if index == 0 || local.is_some_and(|local| endings.iter().any(|end| local.ends_with(end))) {
            kept.extend_from_slice(text.as_bytes());
            kept.push(b'\n');
        }
    }
    let TcpNetEntries(entries) =
        TcpNetEntries::from_read(&kept[..], &LocalSystemInfo).map_err(|_| malformed(table))?;
    let used = entries.into_iter().filter(|entry| {
        // A connection in TIME_WAIT has no owner and doesn't prevent a server from listening.
        entry.state != TcpState::TimeWait && entry.inode != 0
    });
    Ok(used.map(|entry| (entry.inode, entry.local_address.port())).collect())
}

/// The reserved ranges; `None` if unknown. The kernel shows those of the reader's network, so they apply only if the agent
/// is in the host's, where both tables are the same inode.
fn reserved(root: &HostRoot) -> Option<Vec<(u16, u16)>> {
    let table = |process: &str| {
        let entry = root.resolve(format!("/proc/{process}/net/tcp")).ok()?;
        Some((entry.metadata().dev(), entry.metadata().ino()))
    };
    if table("1")? != table("self")? {
        return None;
    }
    let content = String::from_utf8(root.read(RESERVED, MAX_SIZE).ok()?).ok()?;
    ranges(content.trim())
}

/// Parses ranges such as `8000,9601-9602`.
fn ranges(text: &str) -> Option<Vec<(u16, u16)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect()
}

fn contains(ranges: &[(u16, u16)], port: u16) -> bool {
    ranges.iter().any(|&(first, last)| (first..=last).contains(&port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_reserved_ranges() {
        assert_eq!(ranges(""), Some(Vec::new()));
        assert_eq!(ranges("8000,9601-9602\n".trim()), Some(vec![(8000, 8000), (9601, 9602)]));
        assert_eq!(ranges("8000-"), None);
        assert_eq!(ranges("70000"), None);
        let ranges = ranges("8000,9601-9602").expect("ranges");
        assert!([8000, 9601, 9602].iter().all(|&port| contains(&ranges, port)));
        assert!(!contains(&ranges, 9603));
    }

    /// Uses the machine's own network.
    #[test]
    fn finds_a_listener_of_this_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let root = HostRoot::open(std::path::Path::new("/")).expect("opened");
        let entry = root.resolve("/proc/self/net/tcp").expect("a table");
        let sockets = sockets_on(&entry, "/proc/self/net/tcp", &[port]).unwrap_or_default();
        assert_eq!(sockets.into_values().collect::<Vec<_>>(), [port]);
    }
}
