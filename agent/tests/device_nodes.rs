//! Device nodes that disappear and return, noticed by real watches of real folders.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::{Mode, SFlag, mknod};
use swansong_agent::config::Config;
use swansong_agent::device_nodes::DeviceNodes;
use swansong_fault_model::{ActiveFault, Code, DriverFault, Severity, SourceUpdate, Subject};
use swansong_faults::sources::Source;
use swansong_runtime::supervisor::Progress;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for what surely comes.
const LONG: Duration = Duration::from_mins(1);

/// A host of files.
struct Host(tempfile::TempDir);

impl Host {
    /// One with two NPUs and the driver of a training host.
    fn healthy() -> Self {
        let host = Self(tempfile::tempdir().expect("a temporary folder"));
        for folder in ["dev", "proc"] {
            fs::create_dir(host.path(folder)).expect(folder);
        }
        host.driver(true);
        for name in ["null", "davinci_manager", "hisi_hdc", "devmm_svm", "davinci0", "davinci1"] {
            host.device(name);
        }
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// A device node 0:0, which the kernel (5.8 and later) lets everybody make.
    fn device(&self, name: &str) {
        mknod(&self.path("dev").join(name), SFlag::S_IFCHR, Mode::from_bits_truncate(0o600), 0).expect(name);
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path("dev").join(name)).expect(name);
    }

    /// The driver as the kernel lists it, its devices having major 0.
    fn driver(&self, loaded: bool) {
        let line = if loaded { "  0 devdrv-cdev\n" } else { "" };
        let text = format!("Character devices:\n  1 mem\n{line}\nBlock devices:\n259 blkext\n");
        fs::write(self.path("proc/devices"), text).expect("written");
    }
}

/// A source at work.
struct Watching {
    seen: mpsc::Receiver<(&'static str, SourceUpdate)>,
    task: JoinHandle<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An interval that no test waits for: what is seen is seen by watching.
const NEVER: &str = "faults: {devices: {interval: 1h}}";
/// One for what a watch doesn't tell.
const OFTEN: &str = "faults: {devices: {interval: 100ms}}";

fn source(host: &Host, config: &str) -> Arc<DeviceNodes> {
    let config = Config::parse(&format!("family: A2\n{config}")).expect("sound");
    Arc::new(DeviceNodes::new(host.0.path(), Arc::new(config.checks), config.faults.device_interval))
}

impl Watching {
    fn start(source: Arc<DeviceNodes>) -> Self {
        let (out, seen) = mpsc::channel(16);
        let progress = Progress::unsupervised(DeviceNodes::NAME);
        let task = tokio::spawn(async move {
            let Err(ended) = source.run(out, progress).await;
            panic!("{ended}");
        });
        Self { seen, task }
    }

    /// A source of a healthy host that has said so.
    async fn healthy(host: &Host, config: &str) -> Self {
        let mut watching = Self::start(source(host, config));
        for subject in [Subject::Npu(0), Subject::Npu(1), Subject::Node] {
            assert_eq!(watching.next().await, (subject, vec![]));
        }
        watching
    }

    async fn seen(&mut self) -> SourceUpdate {
        let (name, seen) = timeout(LONG, self.seen.recv()).await.expect("in time").expect("alive");
        assert_eq!(name, "device-nodes");
        seen
    }

    /// What stands at what.
    async fn next(&mut self) -> (Subject, Vec<String>) {
        match self.seen().await {
            SourceUpdate::Snapshot { subject, faults: standing, .. } => {
                (subject, standing.iter().map(short).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    async fn blind(&mut self) -> (Subject, String) {
        match self.seen().await {
            SourceUpdate::Unavailable { subject, reason: why } => (subject, why),
            other => panic!("{other:?}"),
        }
    }
}

fn short(standing: &ActiveFault) -> String {
    assert_eq!(standing.severity, Some(Severity::Critical));
    standing.code.to_string()
}

fn dropped() -> Vec<String> {
    vec!["40F84E00".to_owned()]
}

#[tokio::test]
async fn b77_a_device_that_is_removed_and_comes_back_has_recovered() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, NEVER).await;
    for _ in 0..3 {
        host.remove("davinci1");
        assert_eq!(watching.next().await, (Subject::Npu(1), dropped()));
        host.device("davinci1");
        assert_eq!(watching.next().await, (Subject::Npu(1), vec![]));
    }
}

#[tokio::test]
async fn a_device_that_is_replaced_by_something_else_has_gone() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, NEVER).await;
    // At once, as a rename does it: what a container runtime makes of a missing device.
    fs::write(host.path("other"), "").expect("written");
    fs::rename(host.path("other"), host.path("dev/davinci0")).expect("renamed");
    let SourceUpdate::Snapshot { subject: Subject::Npu(0), faults: standing, .. } = watching.seen().await
    else {
        panic!()
    };
    assert!(standing[0].name.as_deref().is_some_and(|name| name.contains("isn't a device")), "{standing:?}");
    host.remove("davinci0");
    host.device("davinci0");
    assert_eq!(watching.next().await, (Subject::Npu(0), vec![]));
}

#[tokio::test]
async fn each_part_of_the_driver_is_a_fault_of_the_node() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, NEVER).await;
    let parts = [
        ("davinci_manager", DriverFault::ManagerMissing),
        ("hisi_hdc", DriverFault::HdcMissing),
        ("devmm_svm", DriverFault::SvmMissing),
    ];
    for (name, fault) in parts {
        host.remove(name);
        assert_eq!(watching.next().await, (Subject::Node, vec![fault.code().to_string()]));
        host.device(name);
        assert_eq!(watching.next().await, (Subject::Node, vec![]));
    }
}

#[tokio::test]
async fn a_driver_that_is_unloaded_is_seen_at_the_next_look() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, OFTEN).await;
    host.driver(false);
    assert_eq!(watching.next().await, (Subject::Node, vec![DriverFault::NotLoaded.code().to_string()]));
    host.driver(true);
    assert_eq!(watching.next().await, (Subject::Node, vec![]));
}

#[tokio::test]
async fn all_devices_at_once_are_a_fault_if_the_folder_can_be_read() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, NEVER).await;
    fs::create_dir(host.path("new")).expect("made");
    let null = host.path("new/null");
    mknod(&null, SFlag::S_IFCHR, Mode::from_bits_truncate(0o600), 0).expect("made");
    fs::rename(host.path("dev"), host.path("old")).expect("renamed");
    fs::rename(host.path("new"), host.path("dev")).expect("renamed");
    // Between the two renames there is no folder, which may be seen too, and isn't a fault.
    let mut gone = Vec::new();
    while gone.len() < 3 {
        match watching.seen().await {
            SourceUpdate::Snapshot { subject, faults: standing, .. } => {
                assert_eq!(standing.len(), if subject == Subject::Node { 3 } else { 1 }, "{standing:?}");
                gone.push(subject);
            }
            SourceUpdate::Unavailable { .. } => gone.clear(),
            SourceUpdate::Event(event) => panic!("{event:?}"),
        }
    }
    assert_eq!(gone, [Subject::Npu(0), Subject::Npu(1), Subject::Node]);
    // The new folder is the one that is watched.
    host.device("davinci1");
    assert_eq!(watching.next().await, (Subject::Npu(1), vec![]));
}

#[tokio::test]
async fn a_folder_that_cannot_be_seen_is_no_fault_and_no_recovery() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, OFTEN).await;
    host.remove("davinci0");
    assert_eq!(watching.next().await, (Subject::Npu(0), dropped()));
    // As when the host's file system isn't mounted any more: first no folder, then an empty one.
    fs::rename(host.path("dev"), host.path("old")).expect("renamed");
    for subject in [Subject::Node, Subject::Npu(0), Subject::Npu(1)] {
        let (of, why) = watching.blind().await;
        assert_eq!(of, subject);
        assert!(why.contains("/dev"), "{why}");
    }
    fs::create_dir(host.path("dev")).expect("made");
    fs::remove_dir(host.path("dev")).expect("removed");
    fs::rename(host.path("old"), host.path("dev")).expect("renamed");
    assert_eq!(watching.next().await, (Subject::Npu(0), dropped()), "as it was");
    assert_eq!(watching.next().await, (Subject::Npu(1), vec![]));
    assert_eq!(watching.next().await, (Subject::Node, vec![]));
}

#[tokio::test]
async fn a_host_root_that_is_not_there_is_blindness() {
    let host = Host::healthy();
    let config = Config::parse(OFTEN).expect("valid");
    let (settings, interval) = (Arc::new(config.checks), config.faults.device_interval);
    let mut watching =
        Watching::start(Arc::new(DeviceNodes::new(&host.path("nowhere"), Arc::clone(&settings), interval)));
    let (subject, why) = watching.blind().await;
    assert_eq!(subject, Subject::Node);
    assert!(why.contains("nowhere"), "{why}");
    // An empty folder, as an agent has below its root when nothing is mounted there.
    fs::create_dir(host.path("empty")).expect("made");
    fs::create_dir(host.path("empty/dev")).expect("made");
    let mut watching = Watching::start(Arc::new(DeviceNodes::new(&host.path("empty"), settings, interval)));
    let (_, why) = watching.blind().await;
    assert!(why.contains("isn't mounted"), "{why}");
}

#[tokio::test]
async fn what_was_never_there_is_no_fault_and_a_restart_says_all_again() {
    let host = Host::healthy();
    host.remove("davinci1");
    let source = source(&host, NEVER);
    let mut watching = Watching::start(Arc::clone(&source));
    assert_eq!(watching.next().await, (Subject::Npu(0), vec![]));
    assert_eq!(watching.next().await, (Subject::Node, vec![]));
    host.remove("davinci0");
    assert_eq!(watching.next().await, (Subject::Npu(0), dropped()));
    drop(watching);
    let mut watching = Watching::start(source);
    assert_eq!(watching.next().await, (Subject::Npu(0), dropped()));
    assert_eq!(watching.next().await, (Subject::Node, vec![]));
}

#[tokio::test]
async fn a_fault_of_an_earlier_process_stands_until_the_device_is_back() {
    let host = Host::healthy();
    host.remove("davinci1");
    let source = source(&host, NEVER);
    source.restore([(Subject::Npu(1), Code::from(0x40F8_4E00))]);
    let mut watching = Watching::start(source);
    assert_eq!(watching.next().await, (Subject::Npu(0), vec![]));
    assert_eq!(watching.next().await, (Subject::Npu(1), dropped()));
    assert_eq!(watching.next().await, (Subject::Node, vec![]));
    host.device("davinci1");
    assert_eq!(watching.next().await, (Subject::Npu(1), vec![]));
}

#[tokio::test]
async fn a_flood_of_other_names_and_of_ours_ends_in_what_is_there() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, NEVER).await;
    for round in 0..200 {
        let other = host.path("dev").join(format!("sd{round}"));
        fs::write(&other, "").expect("written");
        fs::remove_file(other).expect("removed");
        host.remove("davinci0");
        host.device("davinci0");
    }
    host.remove("davinci1");
    loop {
        let (subject, standing) = watching.next().await;
        if subject == Subject::Npu(1) {
            assert_eq!(standing, dropped());
            break;
        }
    }
}
