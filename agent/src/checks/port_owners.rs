//! Finds the processes that use sockets.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use procfs::process::{FDTarget, Process};

use crate::host::{HostRoot, cgroup};

/// After a search that found no owner, the next search for the same socket is this many rounds later.
const SEARCH_EVERY: u32 = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PortOwner {
    Pod,
    Process { pid: i32, name: String },
    Unknown,
}

/// A cache of the processes that own sockets, since a search reads the open files of all processes. A cached process is
/// verified in each round.
#[derive(Debug, Default)]
pub struct PortOwners(Mutex<BTreeMap<u64, CachedOwner>>);

/// The last known owner of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CachedOwner {
    Process(u32),
    /// No process had it open; the value counts the rounds until the next search.
    NotFound(u32),
}

impl PortOwners {
    /// The owners of `sockets`, which maps inodes to ports.
    pub(super) fn of(&self, root: &HostRoot, sockets: &BTreeMap<u64, u16>) -> Vec<(u16, PortOwner)> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut search = Search { root, left: sockets.clone(), found: Vec::new(), owners: Vec::new() };
        let mut pids: Vec<u32> = sockets
            .keys()
            .filter_map(|inode| match cache.get(inode)? {
                CachedOwner::Process(pid) => Some(*pid),
                CachedOwner::NotFound(_) => None,
            })
            .collect();
        pids.sort_unstable();
        pids.dedup();
        search.search(pids);
        let remaining_rounds = |inode: &u64| match cache.get(inode) {
            Some(CachedOwner::NotFound(rounds)) => rounds.checked_sub(1).filter(|left| *left > 0),
            _ => None,
        };
        let mut waiting: BTreeMap<u64, u32> =
            search.left.keys().filter_map(|inode| Some((*inode, remaining_rounds(inode)?))).collect();
        if search.left.keys().any(|inode| !waiting.contains_key(inode)) {
            let names = root.list("/proc").unwrap_or_default();
            search.search(names.iter().filter_map(|name| name.to_str()?.parse().ok()));
            waiting.clear();
        }
        let Search { left, found, mut owners, .. } = search;
        let not_found = left.keys().map(|inode| {
            (*inode, CachedOwner::NotFound(waiting.get(inode).copied().unwrap_or(SEARCH_EVERY)))
        });
        *cache = found
            .into_iter()
            .map(|(inode, pid)| (inode, CachedOwner::Process(pid)))
            .chain(not_found)
            .collect();
        owners.extend(left.into_values().map(|port| (port, PortOwner::Unknown)));
        owners
    }
}

struct Search<'r> {
    root: &'r HostRoot,
    /// Sockets without a known owner.
    left: BTreeMap<u64, u16>,
    found: Vec<(u64, u32)>,
    owners: Vec<(u16, PortOwner)>,
}

impl Search<'_> {
    fn search(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            if self.left.is_empty() {
                break;
            }
            let Ok(process) = Process::new_with_root(self.root.path().join(format!("proc/{pid}"))) else {
                continue;
            };
            // This fails without permission, and if the process has ended.
            let Ok(descriptors) = process.fd() else { continue };
            for descriptor in descriptors.flatten() {
                if let FDTarget::Socket(inode) = descriptor.target
                    && let Some(port) = self.left.remove(&inode)
                {
                    self.found.push((inode, pid));
                    self.owners.push((port, owner(&process)));
                }
            }
        }
    }
}

fn owner(process: &Process) -> PortOwner {
    match cgroup::of(process) {
        Ok(Some(_)) => return PortOwner::Pod,
        Ok(None) => {}
        Err(_) => return PortOwner::Unknown,
    }
    let name = process.stat().map(|stat| stat.comm).unwrap_or_default();
    PortOwner::Process { pid: process.pid(), name }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;
    use std::path::Path;

    use super::*;

    fn inode(listener: &TcpListener) -> u64 {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).expect("a socket");
        let link = link.to_string_lossy();
        link.trim_start_matches("socket:[").trim_end_matches(']').parse().expect("a number")
    }

    fn known(owners: &PortOwners) -> BTreeMap<u64, CachedOwner> {
        owners.0.lock().expect("whole").clone()
    }

    /// Uses the machine's own processes; this test owns the socket.
    #[test]
    fn a_cached_owner_is_verified() {
        let root = HostRoot::open(Path::new("/")).expect("opened");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let inode = inode(&listener);
        let sockets = BTreeMap::from([(inode, 1)]);
        let owners = PortOwners::default();
        let first = owners.of(&root, &sockets);
        assert!(matches!(&first[..], [(1, PortOwner::Process { .. } | PortOwner::Pod)]), "{first:?}");
        assert_eq!(known(&owners), BTreeMap::from([(inode, CachedOwner::Process(std::process::id()))]));
        assert_eq!(owners.of(&root, &sockets), first);

        // A wrong cache entry is corrected.
        *owners.0.lock().expect("whole") = BTreeMap::from([(inode, CachedOwner::Process(1))]);
        assert_eq!(owners.of(&root, &sockets), first);

        assert_eq!(owners.of(&root, &BTreeMap::new()), []);
        assert_eq!(known(&owners), BTreeMap::new(), "closed sockets leave the cache");
    }

    #[test]
    fn an_unknown_owner_is_searched_again_after_some_rounds() {
        let root = HostRoot::open(Path::new("/")).expect("opened");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let ours = inode(&listener);
        let owners = PortOwners::default();
        *owners.0.lock().expect("whole") = BTreeMap::from([(ours, CachedOwner::NotFound(3))]);
        let sockets = BTreeMap::from([(ours, 1)]);
        assert_eq!(owners.of(&root, &sockets), [(1, PortOwner::Unknown)]);
        assert_eq!(owners.of(&root, &sockets), [(1, PortOwner::Unknown)]);
        assert_ne!(owners.of(&root, &sockets), [(1, PortOwner::Unknown)], "searched again");

        // A new socket causes a search for all.
        *owners.0.lock().expect("whole") = BTreeMap::from([(ours, CachedOwner::NotFound(3))]);
        let found = owners.of(&root, &BTreeMap::from([(ours, 1), (u64::MAX, 2)]));
        assert!(found.iter().any(|(port, holder)| *port == 1 && *holder != PortOwner::Unknown), "{found:?}");
        assert_eq!(known(&owners)[&u64::MAX], CachedOwner::NotFound(SEARCH_EVERY));
    }
}
