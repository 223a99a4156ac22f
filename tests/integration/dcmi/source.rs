//! The agent's source: it finds the library on a host, runs the process, and reports devices that it can't watch.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use swansong_agent::checks::Trust;
use swansong_agent::config::Config;
use swansong_agent::dcmi_library;
use swansong_dcmi::watch::{Line, Mode};
use swansong_fake_dcmi::{Script, build};
use swansong_fault_model::{ActiveFault, SourceUpdate, Subject};
use swansong_faults::sources::{Dcmi, DcmiSettings, Source as _};
use swansong_runtime::supervisor::{Progress, TaskError};
use tempfile::TempDir;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::child::{TEST_TIMEOUT, codes};

/// A host with a driver.
struct Host {
    folder: TempDir,
    script: Script,
}

impl Host {
    /// A host with the library in the driver's folder.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let libraries = folder.path().join("usr/local/Ascend/driver/lib64/driver");
        fs::create_dir_all(&libraries).expect("made");
        let script = Script::beside(&build(&libraries));
        Self { folder, script }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        // The user who runs the tests.
        config.checks.driver.trust = Trust::Owner(self.folder.path().metadata().expect("there").uid());
        config
    }

    fn settings(&self, config: Config) -> DcmiSettings {
        let mut settings =
            DcmiSettings::new(dcmi_library::finder(self.folder.path().to_owned(), config.checks));
        settings.program = env!("CARGO_BIN_EXE_swansong").into();
        settings.timing.alive = Duration::from_millis(20);
        settings.timing.poll = Duration::from_millis(50);
        settings.timing.repoll = Duration::from_millis(50);
        settings
    }

    fn run(&self) -> Run {
        Run::start(Arc::new(Dcmi::new(self.settings(self.config()))))
    }

    /// A shell script that runs instead of `swansong dcmi`. `install` writes it, since a file that this process has open for
    /// writing can't be executed, and other tests may have inherited the descriptor.
    fn program(&self, script: &str) -> PathBuf {
        let (text, program) = (self.path("script.txt"), self.path("program"));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("written");
        let installed = Command::new("install").args([&text, &program]).status().expect("install runs");
        assert!(installed.success());
        program
    }

    /// The process that uses this host's library.
    fn pid(&self) -> Option<Pid> {
        let processes = fs::read_dir("/proc").expect("procfs");
        processes.filter_map(Result::ok).find_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let library = Path::new(std::str::from_utf8(arguments.get(3)?).ok()?);
            (arguments[1] == b"dcmi" && library.starts_with(self.folder.path())).then(|| Pid::from_raw(pid))
        })
    }
}

/// A running source and its updates.
struct Run {
    source: Arc<Dcmi>,
    seen: Receiver<(&'static str, SourceUpdate)>,
    task: JoinHandle<Result<Infallible, TaskError>>,
}

impl Run {
    fn start(source: Arc<Dcmi>) -> Self {
        let (out, seen) = channel(4);
        let task = tokio::spawn(Arc::clone(&source).run(out, Progress::unsupervised("dcmi")));
        Self { source, seen, task }
    }

    async fn find<T>(&mut self, mut wanted: impl FnMut(SourceUpdate) -> Option<T>) -> T {
        let found = async {
            loop {
                let (source, seen) = self.seen.recv().await.expect("the source runs");
                assert_eq!(source, "dcmi");
                if let Some(found) = wanted(seen) {
                    return found;
                }
            }
        };
        timeout(TEST_TIMEOUT, found).await.expect("it is seen")
    }

    async fn snapshot(&mut self, npu: u32, wanted: impl Fn(&[ActiveFault]) -> bool) -> Vec<ActiveFault> {
        self.find(|seen| match seen {
            SourceUpdate::Snapshot { subject: Subject::Npu(id), faults, .. }
                if id == npu && wanted(&faults) =>
            {
                Some(faults)
            }
            _ => None,
        })
        .await
    }

    /// The error with which it ends, and the subjects that it reports as unavailable.
    async fn end(mut self) -> (String, Vec<Subject>) {
        let mut unavailable = Vec::new();
        let rest = async {
            while let Some((_, seen)) = self.seen.recv().await {
                if let SourceUpdate::Unavailable { subject, .. } = seen {
                    unavailable.push(subject);
                }
            }
        };
        timeout(TEST_TIMEOUT, rest).await.expect("it ends");
        let Err(ended) = self.task.await.expect("no panic");
        (ended.to_string(), unavailable)
    }
}

#[tokio::test]
async fn forwards_updates_of_the_driver() {
    let host = Host::new();
    host.script.card(0, 2).physical(1, 6).codes(1, &[0x80E0_1801]);
    let mut run = host.run();
    assert_eq!(codes(&run.snapshot(6, |_| true).await), ["80E01801"]);
    host.script.event(0, 0x8107_8603, 1, 1, "link down");
    let name =
        run.find(|seen| if let SourceUpdate::Event(event) = seen { Some(event.name) } else { None }).await;
    assert_eq!(name.as_deref(), Some("link down"));
    let source = Arc::clone(&run.source);
    run.find(|_| (source.counts().events == 1).then_some(())).await;
    let state = source.state().expect("it is watched");
    assert_eq!((state.devices.len(), state.mode), (2, Mode::Subscribed));
    assert_eq!(host.script.violations(), "");
    // The process ends with the source.
    let pid = host.pid().expect("a process");
    run.task.abort();
    wait_for_exit(pid).await;
}

#[tokio::test]
async fn devices_are_unavailable_between_two_processes() {
    let host = Host::new();
    host.script.codes(3, &[0x80E0_1801]);
    let mut run = host.run();
    run.snapshot(7, |_| true).await;
    let source = Arc::clone(&run.source);
    run.find(|_| (source.state().is_some_and(|state| state.mode == Mode::Subscribed)).then_some(())).await;
    host.script.event(3, 0x80E0_1802, 2, 1, "");
    run.snapshot(3, |faults| faults.len() == 2).await;
    kill(host.pid().expect("a process"), Signal::SIGKILL).expect("killed");
    let (why, unavailable) = run.end().await;
    assert_eq!(why, "the process that watches the devices has ended: signal: 9 (SIGKILL)");
    let all = (0..8).map(Subject::Npu).chain([Subject::Node]);
    assert_eq!(unavailable, all.collect::<Vec<_>>());
    assert_eq!(source.state(), None);

    // The next process reports the changes in between, and devices that aren't listed any more as unavailable.
    host.script.event(3, 0x80E0_1801, 2, 0, "").event(4, 0x80E0_1801, 2, 1, "");
    host.script.line("card 0 6");
    let mut run = Run::start(source);
    let unlisted = run.find(|seen| match seen {
        SourceUpdate::Unavailable { subject, reason: why } => Some((subject, why)),
        _ => None,
    });
    assert_eq!(unlisted.await, (Subject::Npu(6), "the driver doesn't list it any more".to_owned()));
    run.task.abort();
}

#[tokio::test]
async fn crash_ends_only_the_watching_process() {
    let host = Host::new();
    let mut run = host.run();
    run.snapshot(7, |_| true).await;
    host.script.crash();
    let (why, unavailable) = run.end().await;
    assert_eq!(why, "the process that watches the devices has ended: signal: 11 (SIGSEGV)");
    assert_eq!(unavailable.len(), 9);
    // The next process ignores a crash that was in the script when it started.
    host.run().snapshot(0, |_| true).await;
}

#[tokio::test]
async fn kills_a_hanging_process() {
    let host = Host::new();
    let mut settings = host.settings(host.config());
    settings.silence = Duration::from_secs(3);
    let mut run = Run::start(Arc::new(Dcmi::new(settings)));
    run.snapshot(7, |_| true).await;
    let pid = host.pid().expect("a process");
    host.script.hang("error-codes");
    let (why, unavailable) = run.end().await;
    assert_eq!(
        why,
        "the process that watches the devices was ended: no output for 3s: a call into the driver's library hangs"
    );
    assert_eq!(unavailable.len(), 9);
    wait_for_exit(pid).await;
}

#[tokio::test]
async fn reports_why_the_driver_never_responds() {
    let host = Host::new();
    host.script.init_fails(-1, -8005);
    let mut settings = host.settings(host.config());
    settings.timing.init_interval = Duration::from_millis(10);
    settings.timing.init_timeout = Duration::from_millis(100);
    let (why, unavailable) = Run::start(Arc::new(Dcmi::new(settings))).end().await;
    assert!(why.contains("has ended: the driver can't be initialized: dcmi_init: -8005"), "{why}");
    assert!(
        !unavailable.is_empty() && unavailable.iter().all(|subject| *subject == Subject::Node),
        "{unavailable:?}"
    );
}

#[tokio::test]
async fn full_channel_is_not_mistaken_for_a_hanging_process() {
    let host = Host::new();
    // More lines than the channel holds, written at once.
    let line = |npu| {
        let (subject, faults) = (Subject::Npu(npu), Vec::new());
        serde_json::to_string(&Line::Update(SourceUpdate::Snapshot { subject, faults, at: 1 })).expect("JSON")
    };
    let lines: Vec<String> = (0..8).map(line).collect();
    fs::write(host.path("lines"), lines.join("\n") + "\n").expect("written");
    let mut settings = host.settings(host.config());
    settings.program = host.program("cat \"${0%/*}/lines\"; exec cat");
    let silence = settings.silence;
    let mut run = Run::start(Arc::new(Dcmi::new(settings)));
    let begun = Instant::now();
    while run.seen.len() < run.seen.max_capacity() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the channel isn't full");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::pause();
    tokio::time::advance(silence * 2).await;
    tokio::time::resume();
    for npu in 0..8 {
        run.snapshot(npu, <[_]>::is_empty).await;
    }
    assert!(!run.task.is_finished());
    run.task.abort();
}

#[tokio::test]
async fn does_not_load_an_untrusted_library() {
    let host = Host::new();
    let mut config = host.config();
    config.checks.driver.trust = Trust::Owner(4_000_000);
    let (why, _) = Run::start(Arc::new(Dcmi::new(host.settings(config)))).end().await;
    assert!(
        why.contains("/usr/local/Ascend/driver/lib64/driver/libdcmi.so") && why.contains("chown"),
        "{why}"
    );
    let mut config = host.config();
    config.checks.driver.trust = Trust::Anyone;
    Run::start(Arc::new(Dcmi::new(host.settings(config)))).snapshot(0, |_| true).await;
}

#[tokio::test]
async fn reports_where_the_library_was_searched() {
    let host = Host::new();
    fs::remove_dir_all(host.path("usr")).expect("removed");
    fs::create_dir(host.path("usr")).expect("made");
    let (why, _) = host.run().end().await;
    assert_eq!(
        why,
        "libdcmi.so is in none of /usr/local/Ascend/driver/lib64, /usr/local/Ascend/driver/lib64/driver, /usr/local/Ascend/driver/lib64/common, /usr/local/dcmi, /usr/lib64; reinstall the driver, or set `driver.path` if it is elsewhere"
    );
}

/// The vendor's library needs others of the driver, which the loader finds by `LD_LIBRARY_PATH` alone; and links in a
/// host are meant to be followed in the host.
#[tokio::test]
async fn library_finds_its_dependencies_below_the_host_root() {
    let host = Host::new();
    fs::create_dir_all(host.path("opt")).expect("made");
    let driver = host.path("opt/driver");
    fs::rename(host.path("usr/local/Ascend/driver"), &driver).expect("moved");
    symlink("/opt/driver", host.path("usr/local/Ascend/driver")).expect("linked");
    let common = driver.join("lib64/common");
    fs::create_dir(&common).expect("made");
    // The functions are in a library that libdcmi.so depends on.
    fs::rename(driver.join("lib64/driver/libdcmi.so"), common.join("libneeded.so")).expect("moved");
    fs::rename(driver.join("lib64/driver/libdcmi.script"), common.join("libdcmi.script")).expect("moved");
    let linked = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,--no-as-needed", "-xc", "/dev/null", "-xnone", "-o"])
        .arg(driver.join("lib64/driver/libdcmi.so"))
        .arg("-L")
        .arg(&common)
        .arg("-l:libneeded.so")
        .status()
        .expect("cc runs");
    assert!(linked.success());
    let mut run = host.run();
    run.snapshot(7, |_| true).await;
    assert_eq!(
        run.source.state().expect("watched").library,
        driver.join("lib64/driver/libdcmi.so").display().to_string()
    );
}

/// Waits until the process has ended.
async fn wait_for_exit(pid: Pid) {
    let begun = Instant::now();
    while kill(pid, None).is_ok() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the process runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
