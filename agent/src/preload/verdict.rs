//! Judges a container by its processes. Pure.

use std::time::Duration;
use swansong_api::documented::Documented as _;

use serde::Serialize;

use swansong_trainer::Training;

use super::launcher::Python;
use super::reason::PreloadReason;

/// The kind of program that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A Python interpreter. If a container has one, it does the training.
    Python,
    /// A shell or another program that starts others.
    Helper,
    /// Any other program.
    Other,
}

/// A process at the time of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProcess {
    /// Its process id on the host.
    pub pid: i32,
    /// Its start time, in clock ticks after boot.
    pub started: u64,
    /// The age at the time of the scan.
    pub age: Duration,
    /// The name of its program.
    pub name: String,
    /// The kind of program.
    pub role: Role,
    /// The expected libraries; `None` if the agent had no permission to inspect the process.
    pub libraries: Option<Vec<Library>>,
    /// What a Python interpreter shows of the launcher; `None` if that isn't needed.
    pub python: Option<Python>,
    /// What a Python interpreter trains.
    pub training: Option<Training>,
}

/// Whether a process's environment contains LD_PRELOAD. The value isn't kept, since it may contain private paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// The environment contains LD_PRELOAD.
    WithPreload,
    /// The environment doesn't contain LD_PRELOAD.
    WithoutPreload,
    /// The process has overwritten its environment.
    Hidden,
}

/// The state of an expected library in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The injected path.
    pub path: String,
    /// Whether the process has LD_PRELOAD.
    pub environment: Environment,
    /// The entry of LD_PRELOAD with the same file name.
    pub entry: Option<String>,
    /// Whether it is mapped into the process's memory.
    pub mapped: bool,
    /// The file that the entry names; checked only if the library isn't mapped.
    pub file: Option<FileState>,
}

/// The state of a file in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// It is a shared object for this machine.
    Valid,
    /// It doesn't exist.
    Missing,
    /// It isn't a shared object.
    NotALibrary,
    /// It is a library for another processor.
    WrongMachine,
    /// The agent has no permission to read it.
    NotReadable,
}

/// Whether the preload of a container is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// All training processes have all libraries.
    Live,
    /// Some libraries are missing in some processes.
    PartlyLive,
    /// No training process has any of the libraries.
    NotLive,
    /// It couldn't be found out.
    Unknown,
}

impl Outcome {
    /// The value of metric labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The verdict on a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether the preload is live.
    pub outcome: Outcome,
    /// The reason for the outcome.
    pub reason: PreloadReason,
    /// Details and what to do.
    pub message: String,
    /// The number of judged processes.
    pub judged: usize,
    /// The missing libraries, at most [`MAX_MISSING`].
    pub missing: Vec<MissingLibrary>,
}

/// A library that isn't live in a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingLibrary {
    /// The process id on the host.
    pub pid: i32,
    pub program: String,
    /// The path of the library.
    pub library: String,
    /// Why it isn't live.
    pub reason: PreloadReason,
}

/// The maximum length of [`Verdict::missing`].
pub const MAX_MISSING: usize = 16;

/// Judges a container by those of its processes that are at least `grace` old.
pub fn judge(processes: &[ObservedProcess], grace: Duration) -> Verdict {
    let container = Container::of(processes);
    let settled = || processes.iter().filter(|process| process.age >= grace);
    let of = |role: Role| settled().filter(|process| process.role == role).collect::<Vec<_>>();
    let workers = [Role::Python, Role::Other].into_iter().map(of).find(|workers| !workers.is_empty());
    if let Some(workers) = workers {
        return container.judge(&workers);
    }
    let helpers = of(Role::Helper);
    // A problem of the image concerns all programs.
    let verdict = container.judge(&helpers);
    if matches!(
        verdict.reason,
        PreloadReason::FileMissing
            | PreloadReason::NotALibrary
            | PreloadReason::WrongArchitecture
            | PreloadReason::NoPermission
    ) {
        return verdict;
    }
    if processes.is_empty() {
        Verdict::unknown(PreloadReason::NoProcess)
    } else if processes.iter().any(|process| process.age < grace) {
        Verdict::unknown(PreloadReason::TooYoung)
    } else {
        Verdict::unknown(PreloadReason::NoTrainingProcess)
    }
}

impl Verdict {
    /// The verdict that nothing could be found out.
    pub(super) fn unknown(reason: PreloadReason) -> Self {
        let message = message(reason, "");
        Self { outcome: Outcome::Unknown, reason, message, judged: 0, missing: Vec::new() }
    }
}

/// All processes of a container, to which a process is compared.
struct Container<'a> {
    first: Option<&'a ObservedProcess>,
    processes: &'a [ObservedProcess],
}

impl<'a> Container<'a> {
    fn of(processes: &'a [ObservedProcess]) -> Self {
        let first = processes.iter().min_by_key(|process| (process.started, process.pid));
        Self { first, processes }
    }

    fn judge(&self, workers: &[&ObservedProcess]) -> Verdict {
        let mut missing = Vec::new();
        let (mut live, mut hidden, mut unreadable) = (0_usize, 0_usize, false);
        for worker in workers {
            let Some(libraries) = &worker.libraries else {
                unreadable = true;
                continue;
            };
            for library in libraries {
                match self.reason(worker, library) {
                    PreloadReason::PreloadLive => live += 1,
                    PreloadReason::EnvironmentHidden => hidden += 1,
                    PreloadReason::NoPermission => unreadable = true,
                    reason => missing.push(MissingLibrary {
                        pid: worker.pid,
                        program: worker.name.clone(),
                        library: library.path.clone(),
                        reason,
                    }),
                }
            }
        }
        let judged = workers.len();
        let Some(first) = missing.first() else {
            return match (live, hidden) {
                _ if unreadable => Verdict::unknown(PreloadReason::NoPermission),
                (0, 0) => Verdict::unknown(PreloadReason::NoProcess),
                (0, _) => Verdict::unknown(PreloadReason::EnvironmentHidden),
                _ => Verdict {
                    outcome: Outcome::Live,
                    reason: PreloadReason::PreloadLive,
                    message: message(PreloadReason::PreloadLive, ""),
                    judged,
                    missing,
                },
            };
        };
        let reason = first.reason;
        let outcome = if live + hidden > 0 { Outcome::PartlyLive } else { Outcome::NotLive };
        let example = format!(" {} in process {} ({})", first.library, first.pid, first.program);
        let message = message(reason, &example);
        missing.truncate(MAX_MISSING);
        Verdict { outcome, reason, message, judged, missing }
    }

    /// The state of one library in one process. TaskD's Python side opens libtaskd.so itself later
    /// (`taskd/python/cython_api/cython_api.py`), so a mapped library is preloaded only if the environment lists it.
    fn reason(&self, worker: &ObservedProcess, library: &Library) -> PreloadReason {
        if library.entry.is_none() {
            return match library.environment {
                Environment::Hidden if library.mapped => PreloadReason::EnvironmentHidden,
                Environment::Hidden => PreloadReason::NotMapped,
                Environment::WithPreload => PreloadReason::Overwritten,
                Environment::WithoutPreload if self.first_process_has(worker, library) => {
                    PreloadReason::ClearedByEntrypoint
                }
                Environment::WithoutPreload => PreloadReason::NotInEnvironment,
            };
        }
        if library.mapped {
            return PreloadReason::PreloadLive;
        }
        match library.file {
            Some(FileState::Missing) => PreloadReason::FileMissing,
            Some(FileState::NotALibrary) => PreloadReason::NotALibrary,
            Some(FileState::WrongMachine) => PreloadReason::WrongArchitecture,
            Some(FileState::NotReadable) => PreloadReason::NoPermission,
            Some(FileState::Valid) | None if self.mapped_in_helper(worker, library) => {
                PreloadReason::MappedInShellOnly
            }
            Some(FileState::Valid) | None => PreloadReason::NotMapped,
        }
    }

    /// Whether the container's first process has the library in LD_PRELOAD.
    fn first_process_has(&self, worker: &ObservedProcess, library: &Library) -> bool {
        self.first.is_some_and(|first| {
            first.pid != worker.pid
                && same_library(first, library).is_some_and(|same_library| same_library.entry.is_some())
        })
    }

    /// Whether a helper of the container has preloaded the library.
    fn mapped_in_helper(&self, worker: &ObservedProcess, library: &Library) -> bool {
        let mut others =
            self.processes.iter().filter(|other| other.pid != worker.pid && other.role == Role::Helper);
        others.any(|other| {
            same_library(other, library)
                .is_some_and(|same_library| same_library.mapped && same_library.entry.is_some())
        })
    }
}

fn same_library<'a>(process: &'a ObservedProcess, library: &Library) -> Option<&'a Library> {
    process.libraries.as_ref()?.iter().find(|same_library| same_library.path == library.path)
}

fn message(reason: PreloadReason, example: &str) -> String {
    let example = if example.is_empty() { String::new() } else { format!(":{example}") };
    let message = format!("{}{example}", reason.meaning().trim_end_matches('.'));
    match reason.remedy() {
        "Nothing to do." => message,
        remedy => format!("{message}. {}", remedy.trim_end_matches('.')),
    }
}
