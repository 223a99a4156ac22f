//! What `/status` shows of the sockets of Pods.

use procfs::net::TcpState;
use swansong_api::pod_status::{Listener, Manager, PUBLISHED, PodStatus, Processor};
use swansong_api::ports::TASKD;
use swansong_faults::NpuPod;

use super::connections::{owners, sockets};
use super::inspect::read_environment;
use super::{PodProcesses, open};
use crate::host::variable;

impl PodProcesses {
    /// What is seen of `pods` at `now`, in milliseconds since 1970. No connection is made: TaskD's port has no authentication,
    /// and a strange connection can end its Manager.
    ///
    /// # Errors
    ///
    /// When the procfs can't be read.
    pub fn statuses(&self, pods: &[NpuPod], now: u64) -> std::io::Result<Vec<PodStatus>> {
        let mut members = self.members()?;
        let of =
            |pod: &NpuPod| self.status(pod, &members.remove(&pod.reference.uid).unwrap_or_default(), now);
        Ok(pods.iter().map(of).collect())
    }

    fn status(&self, pod: &NpuPod, pids: &[i32], now: u64) -> PodStatus {
        let ports = &pod.dump.ports;
        let mut status = PodStatus {
            namespace: pod.reference.namespace.clone(),
            name: pod.reference.name.clone(),
            uid: pod.reference.uid.clone(),
            container: pod.reference.container.clone(),
            observed_at: now,
            ..PodStatus::default()
        };
        let is_relevant =
            |local: u16, remote: u16| local == TASKD || ports.contains(&local) || ports.contains(&remote);
        let Some(found) = sockets(&self.proc, pids, |entry| {
            is_relevant(entry.local_address.port(), entry.remote_address.port())
        }) else {
            return status;
        };
        let (listening, connections): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|entry| entry.state == TcpState::Listen);
        let established = || connections.iter().filter(|entry| entry.state == TcpState::Established);
        let to_controller = || established().filter(|entry| ports.contains(&entry.remote_address.port()));
        let accepted = established().filter(|entry| ports.contains(&entry.local_address.port()));
        let count = |number: usize| Some(u32::try_from(number).unwrap_or(u32::MAX));
        status.connected = count(to_controller().count());
        status.accepted = count(accepted.count());
        let owners = owners(&self.proc, pids);
        let owner = |inode: u64| owners.as_ref()?.get(&inode).copied();
        let manager = listening.iter().find(|entry| entry.local_address.port() == TASKD);
        status.manager = manager.and_then(|entry| owner(entry.inode)).map(|pid| self.manager(pid));
        let mut listeners: Vec<Listener> = listening
            .iter()
            .map(|entry| Listener {
                port: entry.local_address.port(),
                address: entry.local_address.ip().to_string(),
            })
            .collect();
        listeners.sort_unstable();
        listeners.dedup();
        status.listening = Some(listeners);
        status.processors = owners.is_some().then(|| {
            let mut pids: Vec<i32> = to_controller().filter_map(|entry| owner(entry.inode)).collect();
            pids.sort_unstable();
            let processors = pids.chunk_by(|a, b| a == b);
            processors.map(|same| self.processor(same[0], same.len())).collect()
        });
        status
    }

    fn environment(&self, pid: i32) -> Option<Vec<u8>> {
        read_environment(&open(&self.proc, pid)?).ok()
    }

    fn processor(&self, pid: i32, connections: usize) -> Processor {
        let rank = self.environment(pid).and_then(|environment| variable(&environment, "RANK")?.parse().ok());
        Processor { pid, rank, connections: u32::try_from(connections).unwrap_or(u32::MAX) }
    }

    fn manager(&self, pid: i32) -> Manager {
        let environment = self.environment(pid).map(|environment| {
            let published = PUBLISHED.into_iter();
            published.filter_map(|name| Some((name.to_owned(), variable(&environment, name)?))).collect()
        });
        Manager { pid, environment }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::symlink;

    use swansong_faults::{DumpSettings, NpuPod};

    use super::*;

    /// This process is its own Pod here: it listens as MindIO's controller does, and connects to that.
    #[test]
    fn listener_and_connections_of_the_processes_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let pod = NpuPod {
            dump: DumpSettings { ports: vec![address.port()], ..DumpSettings::default() },
            ..NpuPod::default()
        };
        let own = i32::try_from(std::process::id()).expect("an id");
        // A procfs whose first process has the same network, as under hostNetwork. The machine's own may not be readable.
        let proc = tempfile::tempdir().expect("a folder");
        for pid in ["1", &own.to_string()] {
            symlink(format!("/proc/{own}"), proc.path().join(pid)).expect("linked");
        }
        let processes = PodProcesses::new(proc.path().to_owned());
        let status = |pids: &[i32]| processes.status(&pod, pids, 7);
        let before = status(&[own]);
        let expected = [Listener { port: address.port(), address: "127.0.0.1".to_owned() }];
        assert_eq!(before.listening.as_deref(), Some(&expected[..]));
        assert_eq!((before.connected, before.accepted), (Some(0), Some(0)));
        assert_eq!(before.processors.as_deref(), Some(&[][..]));
        assert_eq!((before.manager, before.observed_at), (None, 7), "nothing listens on TaskD's port");

        let streams: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).expect("open")).collect();
        let accepted: Vec<_> = (0..2).map(|_| listener.accept().expect("accepted")).collect();
        let connected = status(&[own]);
        assert_eq!((connected.connected, connected.accepted), (Some(2), Some(2)));
        let processors = connected.processors.expect("they are this process's");
        assert_eq!(processors.iter().map(|one| (one.pid, one.connections)).collect::<Vec<_>>(), [(own, 2)]);
        drop((streams, accepted));

        let without_process = status(&[]);
        assert_eq!(
            (without_process.listening, without_process.connected),
            (None, None),
            "no process can be asked"
        );
    }
}
