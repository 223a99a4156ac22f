//! The ports that a job with hostNetwork needs on its node: 8000 (MindIO's controller), 9601 (TaskD Manager) and 9602
//! (TaskD Proxy).
//!
//! They have to be free, or reserved through `net.ipv4.ip_local_reserved_ports`, so that no client gets one by chance
//! (MindCluster, `04_using_resumable_training_on_the_cli.md`). A pod that holds one is a job at work.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;

use procfs::net::{TcpNetEntries, TcpState};
use procfs::{FromReadSI as _, LocalSystemInfo};

use super::port_owners::{Holder, PortOwners};
use super::unseen;
use crate::reason::Reason;
use crate::report::Finding;
use crate::root::{HostRoot, LookError};

/// The host's network as its first process sees it; `/proc/net` would show that of the agent.
const TABLES: [&str; 2] = ["/proc/1/net/tcp", "/proc/1/net/tcp6"];

const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// A list of every port alone has 400 kB.
const LARGEST: u64 = 1 << 20;

/// Whether the ports are free.
pub(super) fn check(root: &HostRoot, ports: &[u16], owners: &PortOwners) -> Finding {
    let mut sockets = BTreeMap::new();
    for (index, table) in TABLES.into_iter().enumerate() {
        match holders(root, table, ports) {
            Ok(found) => sockets.extend(found),
            // Without IPv6 there is no second table.
            Err(TableError::Look(LookError::Missing)) if index > 0 => {}
            Err(TableError::Look(error)) => {
                return unseen(root, table, &error, Reason::HostPathNotMounted, "mount /proc of the host");
            }
            Err(TableError::Content(problem)) => {
                let message =
                    format!("{table} isn't what a kernel writes ({problem}); mount /proc of the host");
                return Finding::at(table, Reason::NotUnderstood, message);
            }
        }
    }
    let owners = owners.of(root, &sockets);
    let held = |wanted: fn(&Holder) -> bool| owners.iter().find(|(_, holder)| wanted(holder));
    if let Some((port, Holder::Process { pid, name })) =
        held(|holder| matches!(holder, Holder::Process { .. }))
    {
        let message = format!(
            "process {pid} ({name}) holds port {port}, which jobs with hostNetwork need; move it to another port"
        );
        return Finding::at(TABLES[0], Reason::PortTaken, message);
    }
    if let Some((port, _)) = held(|holder| *holder == Holder::Unseen) {
        let message = format!(
            "port {port} is held by a process that the agent may not see; look with `ss -anp sport = :{port}` on the node"
        );
        return Finding::at(TABLES[0], Reason::PortOwnerUnknown, message);
    }
    if !owners.is_empty() {
        return Finding::at(
            TABLES[0],
            Reason::PortsHeldByPods,
            "only pods hold ports among those of the job",
        );
    }
    let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match reserved(root) {
        Some(reserved) if ports.iter().all(|&port| contains(&reserved, port)) => {
            Finding::at(RESERVED, Reason::PortsReserved, format!("{list} are free and reserved"))
        }
        _ => {
            let message = format!(
                "{list} are free; add those that are within ip_local_port_range to net.ipv4.ip_local_reserved_ports, so that no client gets one by chance"
            );
            Finding::at(TABLES[0], Reason::PortsFree, message)
        }
    }
}

enum TableError {
    Look(LookError),
    Content(String),
}

/// The sockets on these ports, by inode. Of a long table only their lines are kept.
fn holders(root: &HostRoot, table: &str, ports: &[u16]) -> Result<BTreeMap<u64, u16>, TableError> {
    let look = TableError::Look;
    let file = root.follow(table).and_then(|entry| entry.open()).map_err(look)?;
    let endings: Vec<String> = ports.iter().map(|port| format!(":{port:04X}")).collect();
    let mut kept = Vec::new();
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|error| look(error.into()))?;
        let text = String::from_utf8_lossy(&line);
        let local = text.split_ascii_whitespace().nth(1);
        if index == 0 || local.is_some_and(|local| endings.iter().any(|end| local.ends_with(end))) {
            kept.extend_from_slice(text.as_bytes());
            kept.push(b'\n');
        }
    }
    let TcpNetEntries(entries) = TcpNetEntries::from_read(&kept[..], &LocalSystemInfo)
        .map_err(|error| TableError::Content(error.to_string()))?;
    let holding = entries.into_iter().filter(|entry| {
        // A connection that waits out its time belongs to nobody and doesn't stop a server.
        entry.state != TcpState::TimeWait && entry.inode != 0
    });
    Ok(holding.map(|entry| (entry.inode, entry.local_address.port())).collect())
}

/// The reserved ranges; `None` if they can't be known. The kernel shows those of the reader's network, so they count
/// only if the agent is in the host's: then both see the same table, with the same inode.
fn reserved(root: &HostRoot) -> Option<Vec<(u16, u16)>> {
    let table = |whose: &str| {
        let entry = root.follow(format!("/proc/{whose}/net/tcp")).ok()?;
        Some((entry.metadata().dev(), entry.metadata().ino()))
    };
    if table("1")? != table("self")? {
        return None;
    }
    let content = String::from_utf8(root.read(RESERVED, LARGEST).ok()?).ok()?;
    ranges(content.trim())
}

/// `8000,9601-9602`.
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
    fn reserved_ranges() {
        assert_eq!(ranges(""), Some(Vec::new()));
        assert_eq!(ranges("8000,9601-9602\n".trim()), Some(vec![(8000, 8000), (9601, 9602)]));
        assert_eq!(ranges("8000-"), None);
        assert_eq!(ranges("70000"), None);
        let ranges = ranges("8000,9601-9602").expect("ranges");
        assert!([8000, 9601, 9602].iter().all(|&port| contains(&ranges, port)));
        assert!(!contains(&ranges, 9603));
    }

    /// The one test with the machine's own network: this process is no pod, or one if the test runs in a pod.
    #[test]
    fn a_listener_of_this_process_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let root = HostRoot::open(std::path::Path::new("/")).expect("opened");
        let sockets = holders(&root, "/proc/self/net/tcp", &[port]).unwrap_or_default();
        assert_eq!(sockets.into_values().collect::<Vec<_>>(), [port]);
    }
}
