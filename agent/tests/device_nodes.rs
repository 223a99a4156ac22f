//! Device nodes that disappear and return, with inotify on real folders.

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

/// Time limit for expected updates.
const LONG: Duration = Duration::from_mins(1);

/// The root folder of a host.
struct Host(tempfile::TempDir);

impl Host {
    /// A host with two NPUs and the driver's device nodes.
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

    /// Creates a device node 0:0, which Linux 5.8 and later allow without privileges.
    fn device(&self, name: &str) {
        mknod(&self.path("dev").join(name), SFlag::S_IFCHR, Mode::from_bits_truncate(0o600), 0).expect(name);
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path("dev").join(name)).expect(name);
    }

    /// Writes `/proc/devices` with or without the driver, whose devices have the major number 0.
    fn driver(&self, loaded: bool) {
        let line = if loaded { "  0 devdrv-cdev\n" } else { "" };
        let text = format!("Character devices:\n  1 mem\n{line}\nBlock devices:\n259 blkext\n");
        fs::write(self.path("proc/devices"), text).expect("written");
    }
}

/// A running source and its updates.
struct Watching {
    seen: mpsc::Receiver<(&'static str, SourceUpdate)>,
    task: JoinHandle<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Without polls, so that only inotify reports changes.
const NEVER: &str = "faults: {devices: {interval: 1h}}";
/// With polls, for changes that inotify doesn't report.
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

    /// A source that has reported the healthy host.
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

    /// The next snapshot: its subject and codes.
    async fn next(&mut self) -> (Subject, Vec<String>) {
        match self.seen().await {
            SourceUpdate::Snapshot { subject, faults, .. } => (subject, faults.iter().map(short).collect()),
            other => panic!("{other:?}"),
        }
    }

    async fn unavailable(&mut self) -> (Subject, String) {
        match self.seen().await {
            SourceUpdate::Unavailable { subject, reason: why } => (subject, why),
            other => panic!("{other:?}"),
        }
    }
}

fn short(faults: &ActiveFault) -> String {
    assert_eq!(faults.severity, Some(Severity::Critical));
    faults.code.to_string()
}

fn dropped() -> Vec<String> {
    vec!["40F84E00".to_owned()]
}

#[tokio::test]
async fn removed_device_that_returns_has_recovered() {
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
async fn device_that_is_replaced_by_a_file_is_a_fault() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, NEVER).await;
    // Atomically replaced by a file, which container runtimes create for a missing device.
    fs::write(host.path("other"), "").expect("written");
    fs::rename(host.path("other"), host.path("dev/davinci0")).expect("renamed");
    let SourceUpdate::Snapshot { subject: Subject::Npu(0), faults, .. } = watching.seen().await else {
        panic!()
    };
    assert!(faults[0].name.as_deref().is_some_and(|name| name.contains("isn't a device")), "{faults:?}");
    host.remove("davinci0");
    host.device("davinci0");
    assert_eq!(watching.next().await, (Subject::Npu(0), vec![]));
}

#[tokio::test]
async fn missing_driver_node_is_a_fault_of_the_node() {
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
async fn unloaded_driver_is_found_by_the_next_poll() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, OFTEN).await;
    host.driver(false);
    assert_eq!(watching.next().await, (Subject::Node, vec![DriverFault::NotLoaded.code().to_string()]));
    host.driver(true);
    assert_eq!(watching.next().await, (Subject::Node, vec![]));
}

#[tokio::test]
async fn all_devices_missing_are_faults_if_the_folder_is_readable() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, NEVER).await;
    fs::create_dir(host.path("new")).expect("made");
    let null = host.path("new/null");
    mknod(&null, SFlag::S_IFCHR, Mode::from_bits_truncate(0o600), 0).expect("made");
    fs::rename(host.path("dev"), host.path("old")).expect("renamed");
    fs::rename(host.path("new"), host.path("dev")).expect("renamed");
    // The source may inspect the host between the two renames. Without a folder the devices are unavailable, not faulty.
    let mut gone = Vec::new();
    while gone.len() < 3 {
        match watching.seen().await {
            SourceUpdate::Snapshot { subject, faults, .. } => {
                assert_eq!(faults.len(), if subject == Subject::Node { 3 } else { 1 }, "{faults:?}");
                gone.push(subject);
            }
            SourceUpdate::Unavailable { .. } => gone.clear(),
            SourceUpdate::Event(event) => panic!("{event:?}"),
        }
    }
    assert_eq!(gone, [Subject::Npu(0), Subject::Npu(1), Subject::Node]);
    // The new folder is watched.
    host.device("davinci1");
    assert_eq!(watching.next().await, (Subject::Npu(1), vec![]));
}

#[tokio::test]
async fn unreadable_folder_is_neither_fault_nor_recovery() {
    let host = Host::healthy();
    let mut watching = Watching::healthy(&host, OFTEN).await;
    host.remove("davinci0");
    assert_eq!(watching.next().await, (Subject::Npu(0), dropped()));
    // Without the mount of the host's file system there is first no folder, and then an empty one.
    fs::rename(host.path("dev"), host.path("old")).expect("renamed");
    for subject in [Subject::Node, Subject::Npu(0), Subject::Npu(1)] {
        let (found, why) = watching.unavailable().await;
        assert_eq!(found, subject);
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
async fn missing_host_root_makes_the_devices_unavailable() {
    let host = Host::healthy();
    let config = Config::parse(OFTEN).expect("valid");
    let (settings, interval) = (Arc::new(config.checks), config.faults.device_interval);
    let mut watching =
        Watching::start(Arc::new(DeviceNodes::new(&host.path("nowhere"), Arc::clone(&settings), interval)));
    let (subject, why) = watching.unavailable().await;
    assert_eq!(subject, Subject::Node);
    assert!(why.contains("nowhere"), "{why}");
    // An empty folder, as in an agent without the mount.
    fs::create_dir(host.path("empty")).expect("made");
    fs::create_dir(host.path("empty/dev")).expect("made");
    let mut watching = Watching::start(Arc::new(DeviceNodes::new(&host.path("empty"), settings, interval)));
    let (_, why) = watching.unavailable().await;
    assert!(why.contains("isn't mounted"), "{why}");
}

#[tokio::test]
async fn missing_device_that_never_existed_is_no_fault_and_a_restart_reports_again() {
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
async fn restored_fault_is_active_until_the_device_returns() {
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
async fn many_changes_end_in_the_current_state() {
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
        let (subject, faults) = watching.next().await;
        if subject == Subject::Npu(1) {
            assert_eq!(faults, dropped());
            break;
        }
    }
}
