//! Who has a socket open.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use procfs::process::{FDTarget, Process};

use crate::preload::cgroup;
use crate::root::HostRoot;

/// For so many rounds the processes aren't gone through again for a socket that none of them showed.
const ROUNDS: u32 = 12;

/// Who holds a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    Pod,
    Process { pid: i32, name: String },
    Unseen,
}

/// Where the owners of sockets were found last, so that a job at work doesn't cost a walk through the open files of all
/// processes each round. It is only where to look first: what was found there before is looked at anew.
#[derive(Debug, Default)]
pub struct PortOwners(Mutex<BTreeMap<u64, Whereabouts>>);

/// Where the owner of a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    Process(u32),
    /// No process showed it; look again after so many rounds.
    Nowhere(u32),
}

impl PortOwners {
    /// Who has these sockets, given by inode with their ports, open. Processes are looked at only when there is a socket.
    pub(super) fn of(&self, root: &HostRoot, sockets: &BTreeMap<u64, u16>) -> Vec<(u16, Holder)> {
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut search = Search { root, left: sockets.clone(), found: Vec::new(), owners: Vec::new() };
        let mut pids: Vec<u32> = sockets
            .keys()
            .filter_map(|inode| match before.get(inode)? {
                Whereabouts::Process(pid) => Some(*pid),
                Whereabouts::Nowhere(_) => None,
            })
            .collect();
        pids.sort_unstable();
        pids.dedup();
        search.among(pids);
        let rested = |inode: &u64| match before.get(inode) {
            Some(Whereabouts::Nowhere(rounds)) => rounds.checked_sub(1).filter(|left| *left > 0),
            _ => None,
        };
        let mut rests: BTreeMap<u64, u32> =
            search.left.keys().filter_map(|inode| Some((*inode, rested(inode)?))).collect();
        if search.left.keys().any(|inode| !rests.contains_key(inode)) {
            let names = root.list("/proc").unwrap_or_default();
            search.among(names.iter().filter_map(|name| name.to_str()?.parse().ok()));
            rests.clear();
        }
        let Search { left, found, mut owners, .. } = search;
        let nowhere = left
            .keys()
            .map(|inode| (*inode, Whereabouts::Nowhere(rests.get(inode).copied().unwrap_or(ROUNDS))));
        *before =
            found.into_iter().map(|(inode, pid)| (inode, Whereabouts::Process(pid))).chain(nowhere).collect();
        owners.extend(left.into_values().map(|port| (port, Holder::Unseen)));
        owners
    }
}

struct Search<'r> {
    root: &'r HostRoot,
    /// Sockets whose owner isn't known yet.
    left: BTreeMap<u64, u16>,
    found: Vec<(u64, u32)>,
    owners: Vec<(u16, Holder)>,
}

impl Search<'_> {
    fn among(&mut self, pids: impl IntoIterator<Item = u32>) {
        for pid in pids {
            if self.left.is_empty() {
                break;
            }
            let Ok(process) = Process::new_with_root(self.root.at().join(format!("proc/{pid}"))) else {
                continue;
            };
            // Without permission there is nothing to see, and what dies meanwhile holds nothing.
            let Ok(descriptors) = process.fd() else { continue };
            for descriptor in descriptors.flatten() {
                if let FDTarget::Socket(inode) = descriptor.target
                    && let Some(port) = self.left.remove(&inode)
                {
                    self.found.push((inode, pid));
                    self.owners.push((port, holder(&process)));
                }
            }
        }
    }
}

fn holder(process: &Process) -> Holder {
    match cgroup::of(process) {
        Ok(Some(_)) => return Holder::Pod,
        Ok(None) => {}
        Err(_) => return Holder::Unseen,
    }
    let name = process.stat().map(|stat| stat.comm).unwrap_or_default();
    Holder::Process { pid: process.pid(), name }
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

    fn known(owners: &PortOwners) -> BTreeMap<u64, Whereabouts> {
        owners.0.lock().expect("whole").clone()
    }

    /// The machine's own processes: this test holds the socket.
    #[test]
    fn an_owner_is_remembered_and_looked_at_anew() {
        let root = HostRoot::open(Path::new("/")).expect("opened");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let inode = inode(&listener);
        let sockets = BTreeMap::from([(inode, 1)]);
        let owners = PortOwners::default();
        let first = owners.of(&root, &sockets);
        assert!(matches!(&first[..], [(1, Holder::Process { .. } | Holder::Pod)]), "{first:?}");
        assert_eq!(known(&owners), BTreeMap::from([(inode, Whereabouts::Process(std::process::id()))]));
        assert_eq!(owners.of(&root, &sockets), first);

        // Where it was isn't believed.
        *owners.0.lock().expect("whole") = BTreeMap::from([(inode, Whereabouts::Process(1))]);
        assert_eq!(owners.of(&root, &sockets), first);

        assert_eq!(owners.of(&root, &BTreeMap::new()), []);
        assert_eq!(known(&owners), BTreeMap::new(), "what is closed is forgotten");
    }

    #[test]
    fn what_nobody_shows_is_looked_for_again_after_some_rounds() {
        let root = HostRoot::open(Path::new("/")).expect("opened");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let ours = inode(&listener);
        let owners = PortOwners::default();
        *owners.0.lock().expect("whole") = BTreeMap::from([(ours, Whereabouts::Nowhere(3))]);
        let sockets = BTreeMap::from([(ours, 1)]);
        assert_eq!(owners.of(&root, &sockets), [(1, Holder::Unseen)]);
        assert_eq!(owners.of(&root, &sockets), [(1, Holder::Unseen)]);
        assert_ne!(owners.of(&root, &sockets), [(1, Holder::Unseen)], "its time has come");

        // A new socket has the processes gone through for all.
        *owners.0.lock().expect("whole") = BTreeMap::from([(ours, Whereabouts::Nowhere(3))]);
        let found = owners.of(&root, &BTreeMap::from([(ours, 1), (u64::MAX, 2)]));
        assert!(found.iter().any(|(port, holder)| *port == 1 && *holder != Holder::Unseen), "{found:?}");
        assert_eq!(known(&owners)[&u64::MAX], Whereabouts::Nowhere(ROUNDS));
    }
}
