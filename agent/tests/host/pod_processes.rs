//! What is seen of the dumps of Pods, and the rank on a lost device, in procfs trees with a real process to end.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use swansong_agent::pod_processes::{ActivityObserver, PodProcesses};
use swansong_fault_model::outcome::Processors;
use swansong_fault_model::rank_process::NoRankEnded;
use swansong_faults::{DumpSettings, NpuPod, PodReference, Processes as _};
use swansong_fixtures::host::Host;

const UID: &str = "0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00";
const TRAINING: &str = "5a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef";
const SIDECAR: &str = "6a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef";
const LAUNCHER: u32 = 4_000_000;

fn pod() -> NpuPod {
    NpuPod {
        reference: PodReference {
            uid: UID.to_owned(),
            group: Some("bert-1".to_owned()),
            ..PodReference::default()
        },
        is_running: true,
        configured: Some(vec![3]),
        rank: Some(0),
        dump: DumpSettings {
            container_id: Some(TRAINING.to_owned()),
            has_hook: true,
            ports: vec![8000],
            ..DumpSettings::default()
        },
        ..NpuPod::default()
    }
}

/// A process of the Pod.
fn add(host: &Host, pid: u32, parent: u32, container: &str, files: &[&str]) {
    let folder = format!("/proc/{pid}");
    host.file(&format!("{folder}/stat"), format!("{pid} (python) S {parent} 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"));
    host.file(&format!("{folder}/cgroup"), format!("0::/kubepods/burstable/pod{UID}/{container}\n"));
    host.file(&format!("{folder}/environ"), "RANK=0\0LOCAL_RANK=0\0ASCEND_VISIBLE_DEVICES=3\0");
    host.folder(&format!("{folder}/fd"));
    for (number, file) in files.iter().enumerate() {
        host.link(&format!("{folder}/fd/{number}"), file);
    }
}

/// A launcher with the hook active, and a rank on device 3 that is a real process.
struct Node {
    host: Host,
    rank: Child,
}

impl Node {
    fn new() -> Self {
        let host = Host::bare();
        let rank = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().expect("sleep");
        let own = fs::read_link("/proc/self/ns/pid").expect("a procfs");
        host.link("/proc/1/ns/pid", own.to_str().expect("plain"));
        add(&host, LAUNCHER, 1, TRAINING, &["/usr/lib/python3/dist-packages/swansong_launcher_hook.py"]);
        add(&host, rank.id(), LAUNCHER, TRAINING, &["socket:[7]", "/dev/davinci_manager", "/dev/davinci3"]);
        Self { host, rank }
    }

    fn end_rank(&self) -> Result<i32, NoRankEnded> {
        PodProcesses::new(self.host.path("/proc")).end_rank(&pod(), 3)
    }

    fn is_alive(&mut self) -> bool {
        self.rank.try_wait().expect("a child").is_none()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.rank.kill();
        let _ = self.rank.wait();
    }
}

#[test]
fn rank_on_a_lost_device_is_ended() {
    let mut node = Node::new();
    // A worker of the rank's data loader inherits its files, and a sidecar may see the device.
    add(&node.host, 4_000_001, node.rank.id(), TRAINING, &["/dev/davinci3"]);
    add(&node.host, 4_000_002, 1, SIDECAR, &["/dev/davinci3"]);
    assert_eq!(node.end_rank(), Ok(node.rank.id().cast_signed()));
    assert_eq!(node.rank.wait().expect("a child").signal(), Some(9));
    assert!(matches!(node.end_rank(), Err(NoRankEnded::NotEnded { .. })), "it has ended");
}

#[test]
fn no_process_is_ended_that_may_be_another() {
    type Change = fn(&Node);
    let cases: [(&str, Change); 6] = [
        ("hook_not_active", |node| node.host.remove(&format!("/proc/{LAUNCHER}/fd/0"))),
        ("not_inspected", |node| node.host.link("/proc/1/ns/pid", "pid:[1]")),
        ("not_inspected", |node| node.host.file(&format!("/proc/{LAUNCHER}/fd"), "")),
        ("several_processes", |node| {
            add(&node.host, 4_000_001, LAUNCHER, TRAINING, &["/dev/davinci3 (deleted)"]);
        }),
        ("no_process", |node| add(&node.host, node.rank.id(), LAUNCHER, SIDECAR, &[])),
        ("contradiction", |node| {
            node.host.file(&format!("/proc/{}/environ", node.rank.id()), "RANK=1\0LOCAL_RANK=0\0");
        }),
    ];
    for (expected, change) in cases {
        let mut node = Node::new();
        change(&node);
        let error = node.end_rank().expect_err(expected);
        assert_eq!(<&str>::from(&error), expected, "{error}");
        assert!(node.is_alive(), "{expected}");
    }
}

/// A line of /proc/net/tcp: an established or a closing connection to a port.
fn connection(port: u16, is_established: bool, inode: u64) -> String {
    let state = if is_established { "01" } else { "08" };
    format!(
        "   0: 0100007F:9C40 0200007F:{port:04X} {state} 00000000:00000000 00:00000000 00000000  0 0 {inode} 1 0 20 4 30 10 -1\n"
    )
}

#[test]
fn connections_and_renames_are_followed_until_the_pod_has_gone() {
    const HEADER: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    let host = Host::bare();
    add(&host, 20, 1, TRAINING, &["socket:[7]"]);
    host.file("/proc/20/cmdline", "python\0train.py\0--save\0/save\0");
    host.folder("/proc/20/root/save/tmp_iter_0000007");
    let table = |lines: &[String]| host.file("/proc/20/net/tcp", format!("{HEADER}{}", lines.concat()));
    let mut observer = ActivityObserver::new(PodProcesses::new(host.path("/proc")));
    let mut observe = |pods: &[NpuPod], now| observer.observe(pods, now).expect("a procfs").get(UID).cloned();
    let processors = |activity: Option<swansong_faults::PodActivity>, now| {
        activity.map(|activity| {
            let connections = activity.connections.processors(0, 9_000, now);
            (connections, activity.renamed.map(|renamed| renamed.folder))
        })
    };

    table(&[connection(9601, true, 7)]);
    assert_eq!(processors(observe(&[pod()], 1_000), 1_000), Some((Processors::NotSeen, None)));
    table(&[connection(8000, true, 7), connection(9601, true, 8)]);
    // Whose connections these are isn't known.
    assert_eq!(processors(observe(&[pod()], 2_000), 2_000), Some((Processors::NotSeen, None)));
    host.link("/proc/1/ns/net", "net:[1]");
    assert_eq!(processors(observe(&[pod()], 2_000), 2_000), Some((Processors::NotSeen, None)));
    host.link("/proc/20/ns/net", "net:[2]");
    assert_eq!(processors(observe(&[pod()], 2_000), 2_000), Some((Processors::Connected, None)));
    // A table that can't be read hides connections.
    table(&[]);
    host.folder("/proc/20/net/tcp6");
    assert_eq!(processors(observe(&[pod()], 2_500), 8_000), Some((Processors::Connected, None)));
    host.remove("/proc/20/net/tcp6");
    table(&[connection(8000, true, 7), connection(9601, true, 8)]);
    // The same network as the host's: only the Pod's own sockets count.
    host.link("/proc/20/ns/net", "net:[1]");
    assert_eq!(processors(observe(&[pod()], 3_000), 3_000), Some((Processors::Connected, None)));
    table(&[connection(8000, true, 99), connection(8000, false, 7)]);
    fs::rename(
        host.path("/proc/20/root/save/tmp_iter_0000007"),
        host.path("/proc/20/root/save/iter_0000007"),
    )
    .expect("renamed");
    let saved = Some("/save/iter_0000007".to_owned());
    assert_eq!(
        processors(observe(&[pod()], 10_000), 20_000),
        Some((Processors::Disconnected, saved.clone()))
    );
    host.remove("/proc/20");
    assert_eq!(processors(observe(&[], 30_000), 30_000), Some((Processors::Disconnected, saved)));
    assert_eq!(observe(&[], 2 * 60 * 60 * 1000), None, "kept for an hour");
}

#[test]
fn checkpoint_that_is_renamed_right_before_the_end_of_its_pod_is_seen() {
    let host = Host::bare();
    add(&host, 20, 1, TRAINING, &[]);
    host.file("/proc/20/cmdline", "python\0train.py\0--save\0/save\0");
    host.folder("/volume/save/tmp_iter_0000007");
    host.link("/proc/20/root", host.path("/volume").to_str().expect("UTF-8"));
    let mut observer = ActivityObserver::new(PodProcesses::new(host.path("/proc")));
    let mut renamed = |pods: &[NpuPod], now| {
        let seen = observer.observe(pods, now).expect("a procfs").get(UID).cloned();
        seen.and_then(|seen| seen.renamed).map(|renamed| renamed.folder)
    };

    assert_eq!(renamed(&[pod()], 1_000), None);
    let save = host.path("/volume/save");
    fs::rename(save.join("tmp_iter_0000007"), save.join("iter_0000007")).expect("renamed");
    host.remove("/proc/20");
    assert_eq!(renamed(&[], 4_000).as_deref(), Some("/save/iter_0000007"));
}
