//! Reads faults from the driver, through libdcmi.so in a separate process (docs/decisions/0014-…).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swansong_dcmi::watch::{Counts, Line, Mode, State, Timing};
use swansong_fault_model::{FaultEvent, SourceUpdate, Subject};
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use super::dcmi_process::{DcmiProcess, NoLine};
use super::{Source, Updates};
use crate::clock::unix_millis;

/// Finding the library takes milliseconds, unless a file system hangs.
const FIND_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the driver's library is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    pub path: PathBuf,
    /// The folders of what it depends on.
    pub folders: Vec<PathBuf>,
}

/// Finds the library, or says why there is none to use. It may block.
pub type FindLibrary = Arc<dyn Fn() -> Result<Library, String> + Send + Sync>;

/// How the library is used.
#[derive(Clone)]
pub struct DcmiSettings {
    /// The program with the subcommand `dcmi`: this one.
    pub program: PathBuf,
    pub find_library: FindLibrary,
    /// The intervals of the process.
    pub timing: Timing,
    /// A process without output for this long hangs in a call into the library.
    pub silence: Duration,
}

impl fmt::Debug for DcmiSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DcmiSettings").field("program", &self.program).finish_non_exhaustive()
    }
}

impl DcmiSettings {
    /// The settings of this program.
    pub fn new(find_library: FindLibrary) -> Self {
        Self {
            // Its path may name another version by now.
            program: PathBuf::from("/proc/self/exe"),
            find_library,
            timing: Timing::default(),
            silence: Duration::from_secs(30),
        }
    }
}

#[derive(Debug)]
pub struct Dcmi {
    settings: DcmiSettings,
    shared: Mutex<Shared>,
}

/// What outlives a process.
#[derive(Debug, Default)]
struct Shared {
    /// The subjects that were reported.
    reported: BTreeSet<Subject>,
    state: Option<State>,
    /// The counts of earlier processes.
    before: Counts,
    /// The counts of the current process.
    now: Counts,
}

impl Dcmi {
    /// The source with these settings.
    pub fn new(settings: DcmiSettings) -> Self {
        Self { settings, shared: Mutex::default() }
    }

    /// How the devices are watched; `None` while they aren't.
    pub fn state(&self) -> Option<State> {
        self.lock().state.clone()
    }

    /// The counts of all processes.
    pub fn counts(&self) -> Counts {
        let shared = self.lock();
        sum(shared.before, shared.now)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(&self, updates: &Updates, progress: &Progress) -> Result<Infallible, TaskError> {
        let library = self.find().await?;
        let mut child = self.start(&library)?;
        info!(pid = child.id(), library = %library.path.display(), "watching the devices through the driver");
        let problem = self.follow(&mut child, updates, progress).await;
        let status = child.end().await;
        Err(TaskError(match (problem, status) {
            (Problem::Said(why), _) => format!("the process that watches the devices has ended: {why}"),
            (Problem::NoLine(NoLine::End), Some(status)) => {
                format!("the process that watches the devices has ended: {status}")
            }
            (Problem::NoLine(problem), _) => {
                format!("the process that watches the devices was ended: {problem}")
            }
            (Problem::Here(why), _) => why,
        }))
    }

    async fn find(&self) -> Result<Library, TaskError> {
        let find = Arc::clone(&self.settings.find_library);
        let found = timeout(FIND_TIMEOUT, spawn_blocking(move || find())).await.map_err(|_| {
            TaskError(format!(
                "finding libdcmi.so takes more than {FIND_TIMEOUT:?}; does a file system of the host hang?"
            ))
        })?;
        found.map_err(|panic| TaskError(panic.to_string()))?.map_err(TaskError)
    }

    fn start(&self, Library { path, folders }: &Library) -> Result<DcmiProcess, TaskError> {
        let DcmiSettings { program, timing, .. } = &self.settings;
        let time = |time: Duration| humantime::format_duration(time).to_string();
        let times = [
            ("--init-interval", timing.init_interval),
            ("--init-timeout", timing.init_timeout),
            ("--subscribe-interval", timing.subscribe_interval),
            ("--poll", timing.poll),
            ("--repoll", timing.repoll),
            ("--alive", timing.alive),
        ]
        .map(|(flag, value)| (flag, time(value)));
        let arguments = [OsStr::new("dcmi"), OsStr::new("--library"), path.as_os_str()];
        let times = times.iter().flat_map(|(flag, value)| [OsStr::new(flag), OsStr::new(value)]);
        let folders: Vec<OsString> = folders.iter().map(|folder| folder.clone().into_os_string()).collect();
        DcmiProcess::start(program, arguments.into_iter().chain(times), &folders.join(OsStr::new(":")))
            .map_err(|error| {
                TaskError(format!("the process that watches the devices can't be started: {error}"))
            })
    }

    /// Forwards the output of the process until it ends.
    async fn follow(&self, child: &mut DcmiProcess, updates: &Updates, progress: &Progress) -> Problem {
        let mut last = None;
        loop {
            let line = match child.line(self.settings.silence).await {
                Ok(line) => serde_json::from_slice(line),
                Err(NoLine::End) => return last.map_or(Problem::NoLine(NoLine::End), Problem::Said),
                Err(problem) => return Problem::NoLine(problem),
            };
            let received = match line {
                Ok(Line::Ended(why)) => {
                    last = Some(why);
                    continue;
                }
                Ok(line) => self.take(line, progress),
                Err(error) => {
                    return Problem::Here(format!(
                        "the process that watches the devices wrote an unknown line: {error}"
                    ));
                }
            };
            for update in received {
                if updates.send((Self::NAME, update)).await.is_err() {
                    return Problem::Here("the pipeline has ended".to_owned());
                }
            }
        }
    }

    fn take(&self, line: Line, progress: &Progress) -> Vec<SourceUpdate> {
        let mut shared = self.lock();
        match line {
            Line::Update(seen) => {
                if let SourceUpdate::Snapshot { subject, .. }
                | SourceUpdate::Event(FaultEvent { subject, .. }) = &seen
                {
                    shared.reported.insert(*subject);
                }
                vec![seen]
            }
            Line::State(state) => {
                log(&state);
                let listed: BTreeSet<_> =
                    state.devices.iter().map(|device| Subject::Npu(device.physical)).collect();
                let why = "the driver doesn't list it any more";
                let gone = shared.reported.difference(&listed).map(|subject| unavailable(*subject, why));
                let mut updates: Vec<SourceUpdate> = gone.collect();
                // The driver answers again. It reports nothing else of the node as a whole.
                updates.push(SourceUpdate::Snapshot {
                    subject: Subject::Node,
                    faults: Vec::new(),
                    at: unix_millis(),
                });
                shared.state = Some(state);
                updates
            }
            Line::Alive(counts) => {
                shared.now = counts;
                if shared.state.is_some() {
                    progress.succeeded();
                } else {
                    progress.alive();
                }
                Vec::new()
            }
            Line::Trouble(problem) => {
                warn!(problem, "the devices can't be watched yet");
                progress.failed(&problem);
                vec![unavailable(Subject::Node, &problem)]
            }
            Line::Ended(_) => Vec::new(),
        }
    }
}

impl Source for Dcmi {
    const NAME: &'static str = "dcmi";

    async fn run(self: Arc<Self>, updates: Updates, progress: Progress) -> Result<Infallible, TaskError> {
        let Err(ended) = self.watch(&updates, &progress).await;
        let unavailable: Vec<SourceUpdate> = {
            let mut shared = self.lock();
            shared.state = None;
            shared.before = sum(shared.before, std::mem::take(&mut shared.now));
            let all = shared.reported.iter().copied().chain([Subject::Node]);
            all.map(|subject| unavailable(subject, &ended.0)).collect()
        };
        for update in unavailable {
            // Without a pipeline there is nothing to report.
            let _ = updates.send((Self::NAME, update)).await;
        }
        Err(ended)
    }
}

/// Why there is no more output.
enum Problem {
    /// The process gave a reason.
    Said(String),
    NoLine(NoLine),
    /// The reason isn't the process.
    Here(String),
}

fn unavailable(subject: Subject, why: &str) -> SourceUpdate {
    SourceUpdate::Unavailable { subject, reason: why.to_owned() }
}

fn log(State { api, dcmi_version, driver_version, devices, unnamed, mode, .. }: &State) {
    let devices = devices.len();
    match mode {
        Mode::Subscribing => info!(?api, dcmi_version, driver_version, devices, "the driver answers"),
        Mode::Subscribed => info!(devices, "the driver reports faults as they occur"),
        Mode::Polling(why) => {
            warn!(devices, why, "the driver reports no events, polling the devices");
        }
    }
    for why in unnamed {
        warn!(why, "a device can't be watched");
    }
}

const fn sum(one: Counts, other: Counts) -> Counts {
    Counts {
        events: one.events.saturating_add(other.events),
        lost: one.lost.saturating_add(other.lost),
        unknown_device: one.unknown_device.saturating_add(other.unknown_device),
        ignored: one.ignored.saturating_add(other.ignored),
    }
}
