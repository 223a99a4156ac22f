//! However the owner of a cluster ends, nothing of the cluster is left.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use swansong_testcluster::{Error, Info, Tier, eventually, prerequisites};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A process that holds a cluster, and what it said about it.
struct Owner {
    process: Child,
    info: Info,
    /// Pid namespace of the node, in which the processes of its pods are.
    namespace: Option<PathBuf>,
    /// What is named after the cluster's network. Another cluster may take that over at once, so
    /// each comes with a number that is never used twice.
    named: Vec<(PathBuf, u64)>,
}

impl Owner {
    fn start(tier: Tier) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hold"));
        command.arg(tier.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let info: Info = serde_json::from_str(&line).unwrap();
        let kubelet =
            processes_of(&info.directory).into_iter().find(|(_, line)| line.contains("kubelet.json"));
        let namespace = kubelet.map(|(pid, _)| fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap());
        assert_eq!(namespace.is_some(), tier == Tier::Node);
        let named =
            info.node.as_ref().map(|node| named_after(node.host_address.octets()[2])).unwrap_or_default();
        assert_eq!(named.len() > 1, tier == Tier::Node);
        Self { process, info, namespace, named }
    }

    fn signal(&mut self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).unwrap();
        self.process.wait().unwrap();
    }

    /// Everything of the cluster that still exists.
    fn remains(&self) -> Vec<String> {
        let mut remains: Vec<_> = processes_of(&self.info.directory)
            .into_iter()
            .map(|(pid, line)| format!("process {pid} {line}"))
            .collect();
        let in_namespace = |pid: &u32| {
            self.namespace.is_some() && fs::read_link(format!("/proc/{pid}/ns/pid")).ok() == self.namespace
        };
        remains.extend(pids().filter(in_namespace).map(|pid| format!("process {pid} in the node")));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let directory = self.info.directory.display().to_string();
        remains.extend(
            mounts.lines().filter(|line| line.contains(&directory)).map(|line| format!("mount {line}")),
        );
        let is_there =
            |(path, inode): &&(PathBuf, u64)| fs::metadata(path).is_ok_and(|data| data.ino() == *inode);
        remains.extend(self.named.iter().filter(is_there).map(|(path, _)| path.display().to_string()));
        remains
    }
}

/// The interface and the control groups of a cluster, with their inode numbers.
fn named_after(slot: u8) -> Vec<(PathBuf, u64)> {
    let interface = PathBuf::from(format!("/sys/class/net/swansong{slot}/"));
    let group = format!("swansong-testcluster-{slot}");
    let groups = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path().join(&group));
    let all = groups.chain([interface, Path::new("/sys/fs/cgroup").join(&group)]);
    all.filter_map(|path| fs::metadata(&path).ok().map(|data| (path, data.ino()))).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn processes_of(directory: &Path) -> Vec<(u32, String)> {
    let directory = directory.display().to_string();
    let with_line = |pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    pids().filter_map(with_line).filter(|(_, line)| line.contains(&directory)).collect()
}

async fn nothing_remains(owner: &Owner) {
    eventually("nothing remains", TIMEOUT, || async {
        let mut remains = owner.remains();
        remains.extend(owner.info.directory.exists().then(|| owner.info.directory.display().to_string()));
        if remains.is_empty() { Ok(()) } else { Err(format!("{remains:#?}")) }
    })
    .await
    .unwrap();
}

fn tiers() -> impl Iterator<Item = Tier> {
    [Tier::Api, Tier::Node].into_iter().filter(|tier| {
        let missing = prerequisites::check(*tier);
        assert!(missing.is_empty() || std::env::var_os("CI").is_none(), "{}", Error::Prerequisites(missing));
        missing.is_empty()
    })
}

#[tokio::test]
async fn an_owner_that_is_killed_leaves_nothing() {
    for tier in tiers() {
        let mut owner = Owner::start(tier);
        owner.signal(Signal::SIGKILL);
        nothing_remains(&owner).await;
    }
}

#[tokio::test]
async fn an_owner_that_is_done_leaves_nothing() {
    for tier in tiers() {
        let mut owner = Owner::start(tier);
        drop(owner.process.stdin.take());
        assert!(owner.process.wait().unwrap().success());
        nothing_remains(&owner).await;
    }
}

#[tokio::test]
async fn a_supervisor_that_is_killed_leaves_no_process() {
    for tier in tiers() {
        let mut owner = Owner::start(tier);
        kill(Pid::from_raw(owner.info.supervisor.cast_signed()), Signal::SIGKILL).unwrap();
        eventually("no process remains", TIMEOUT, || async {
            let remains: Vec<_> =
                owner.remains().into_iter().filter(|one| !one.starts_with("/sys/fs/cgroup")).collect();
            if remains.is_empty() { Ok(()) } else { Err(format!("{remains:#?}")) }
        })
        .await
        .unwrap();
        owner.signal(Signal::SIGKILL);
        // The next cluster on this machine would do it; this test doesn't wait for that.
        fs::remove_dir_all(&owner.info.directory).unwrap();
    }
}
