//! The driver's own word, through libdcmi.so in a process of its own (docs/decisions/0014-…).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swansong_dcmi::watch::{Counts, Line, Mode, State, Timing};
use swansong_fault_model::{FaultEvent, SourceUpdate, Subject};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use super::child::{Child, NoLine};
use super::{Out, Progress, Source, TaskError};
use crate::checks::{LoadableLibrary, loadable_library};
use crate::config::Config;
use crate::fault::millis;
use crate::host::HostRoot;

const LIBRARY: &str = "libdcmi.so";

/// Looking for the library takes milliseconds, unless a file system hangs.
const LOOK: Duration = Duration::from_secs(30);

/// What it needs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The program that has the subcommand `dcmi`: this one.
    pub program: PathBuf,
    /// Where the host's file system is.
    pub host_root: PathBuf,
    /// Where the driver is, and whom to trust.
    pub config: Arc<Config>,
    /// How patient the process is.
    pub timing: Timing,
    /// A process that says nothing for so long hangs in a call into the library.
    pub silence: Duration,
}

impl Settings {
    /// Those of this program.
    pub fn new(host_root: PathBuf, config: Arc<Config>) -> Self {
        Self {
            // Not its path: another version may lie there by now.
            program: PathBuf::from("/proc/self/exe"),
            host_root,
            config,
            timing: Timing::default(),
            silence: Duration::from_secs(30),
        }
    }
}

/// The source.
#[derive(Debug)]
pub struct Dcmi {
    settings: Settings,
    shared: Mutex<Shared>,
}

/// What outlives a process.
#[derive(Debug, Default)]
struct Shared {
    /// Of which NPUs something was told.
    told: BTreeSet<Subject>,
    state: Option<State>,
    /// What the processes before counted.
    before: Counts,
    /// What this one has.
    now: Counts,
}

impl Dcmi {
    /// The source with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, shared: Mutex::default() }
    }

    /// How the devices are watched; `None` while they aren't.
    pub fn state(&self) -> Option<State> {
        self.lock().state.clone()
    }

    /// What was counted since this was made, over all processes.
    pub fn counts(&self) -> Counts {
        let shared = self.lock();
        sum(shared.before, shared.now)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(&self, out: &Out, progress: &Progress) -> Result<Infallible, TaskError> {
        let loadable = self.find().await?;
        let mut child = self.start(&loadable)?;
        info!(pid = child.id(), library = %loadable.library.display(), "watching the devices through the driver");
        let problem = self.follow(&mut child, out, progress).await;
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

    async fn find(&self) -> Result<LoadableLibrary, TaskError> {
        let (root, config) = (self.settings.host_root.clone(), Arc::clone(&self.settings.config));
        let look = spawn_blocking(move || {
            let opened = HostRoot::open(&root);
            let root = opened
                .map_err(|error| format!("the host root {} can't be opened: {error}", root.display()))?;
            loadable_library(&root, &config.checks, LIBRARY).map_err(|finding| finding.message)
        });
        let found = timeout(LOOK, look).await.map_err(|_| {
            TaskError(format!(
                "looking for {LIBRARY} takes more than {LOOK:?}; does a file system of the host hang?"
            ))
        })?;
        found.map_err(|panic| TaskError(panic.to_string()))?.map_err(TaskError)
    }

    fn start(&self, LoadableLibrary { library, folders }: &LoadableLibrary) -> Result<Child, TaskError> {
        let Settings { program, timing, .. } = &self.settings;
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
        let arguments = [OsStr::new("dcmi"), OsStr::new("--library"), library.as_os_str()];
        let times = times.iter().flat_map(|(flag, value)| [OsStr::new(flag), OsStr::new(value)]);
        let folders: Vec<OsString> = folders.iter().map(|folder| folder.clone().into_os_string()).collect();
        Child::start(program, arguments.into_iter().chain(times), &folders.join(OsStr::new(":"))).map_err(
            |error| TaskError(format!("the process that watches the devices can't be started: {error}")),
        )
    }

    /// Hands on what the process says, until it says nothing more.
    async fn follow(&self, child: &mut Child, out: &Out, progress: &Progress) -> Problem {
        let mut last = None;
        loop {
            let line = match child.line(self.settings.silence).await {
                Ok(line) => serde_json::from_slice(line),
                Err(NoLine::End) => return last.map_or(Problem::NoLine(NoLine::End), Problem::Said),
                Err(problem) => return Problem::NoLine(problem),
            };
            let seen = match line {
                Ok(Line::Ended(why)) => {
                    last = Some(why);
                    continue;
                }
                Ok(line) => self.take(line, progress),
                Err(error) => {
                    return Problem::Here(format!(
                        "the process that watches the devices wrote what can't be understood: {error}"
                    ));
                }
            };
            for seen in seen {
                if out.send((Self::NAME, seen)).await.is_err() {
                    return Problem::Here("nobody takes what is seen".to_owned());
                }
            }
        }
    }

    /// What a line says of the devices.
    fn take(&self, line: Line, progress: &Progress) -> Vec<SourceUpdate> {
        let mut shared = self.lock();
        match line {
            Line::Update(seen) => {
                if let SourceUpdate::Snapshot { subject, .. }
                | SourceUpdate::Event(FaultEvent { subject, .. }) = &seen
                {
                    shared.told.insert(*subject);
                }
                vec![seen]
            }
            Line::State(state) => {
                tell(&state);
                let listed: BTreeSet<_> =
                    state.devices.iter().map(|device| Subject::Npu(device.physical)).collect();
                let why = "the driver doesn't list it any more";
                let gone = shared.told.difference(&listed).map(|subject| blind(*subject, why));
                let mut seen: Vec<SourceUpdate> = gone.collect();
                // The driver answers again. Of the node as a whole it says nothing else.
                seen.push(SourceUpdate::Snapshot {
                    subject: Subject::Node,
                    faults: Vec::new(),
                    at: millis(),
                });
                shared.state = Some(state);
                seen
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
                vec![blind(Subject::Node, &problem)]
            }
            Line::Ended(_) => Vec::new(),
        }
    }
}

impl Source for Dcmi {
    const NAME: &'static str = "dcmi";

    async fn run(self: Arc<Self>, out: Out, progress: Progress) -> Result<Infallible, TaskError> {
        let Err(ended) = self.watch(&out, &progress).await;
        let unseen: Vec<SourceUpdate> = {
            let mut shared = self.lock();
            shared.state = None;
            shared.before = sum(shared.before, std::mem::take(&mut shared.now));
            let all = shared.told.iter().copied().chain([Subject::Node]);
            all.map(|subject| blind(subject, &ended.0)).collect()
        };
        for seen in unseen {
            // Without a taker nobody has to know.
            let _ = out.send((Self::NAME, seen)).await;
        }
        Err(ended)
    }
}

/// Why there is nothing more from the process.
enum Problem {
    /// It gave its reason.
    Said(String),
    NoLine(NoLine),
    /// It has nothing to do with it.
    Here(String),
}

fn blind(subject: Subject, why: &str) -> SourceUpdate {
    SourceUpdate::Unavailable { subject, reason: why.to_owned() }
}

fn tell(State { api, dcmi_version, driver_version, devices, unnamed, mode, .. }: &State) {
    let devices = devices.len();
    match mode {
        Mode::Subscribing => info!(?api, dcmi_version, driver_version, devices, "the driver answers"),
        Mode::Subscribed => info!(devices, "the driver tells faults as they come"),
        Mode::Polling(why) => {
            warn!(devices, why, "the driver tells no faults; the devices are asked for them");
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
