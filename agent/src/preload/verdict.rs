//! From what was seen to a verdict: pure.

use std::time::Duration;

use serde::Serialize;

use super::why::{Kind, Why};

/// What kind of program a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A Python interpreter: what trains, wherever there is one.
    Python,
    /// A shell or another starter.
    Helper,
    /// Any other program.
    Other,
}

/// A process as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Its number on the host.
    pub pid: i32,
    /// When it was started, in clock ticks after boot.
    pub started: u64,
    /// How long it has lived.
    pub age: Duration,
    /// The name of its program.
    pub name: String,
    /// What kind of program that is.
    pub role: Role,
    /// The expected libraries; `None` if the agent wasn't allowed to look.
    pub libraries: Option<Vec<Library>>,
}

/// What a process's environment says of LD_PRELOAD. The value isn't kept: it may hold what is none of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// LD_PRELOAD is there.
    Preload,
    /// It isn't.
    Without,
    /// Nobody can tell.
    Hidden,
}

/// An expected library in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Its path, as it was injected.
    pub path: String,
    /// The process's LD_PRELOAD.
    pub environment: Environment,
    /// The entry there that names it.
    pub named: Option<String>,
    /// Whether it is in the process's memory.
    pub mapped: bool,
    /// What stands where the entry points; looked at only if the library is named and not mapped.
    pub file: Option<FileFact>,
}

/// What stands in the image where LD_PRELOAD points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFact {
    /// A shared object for this machine.
    Sound,
    /// Nothing.
    Missing,
    /// Something else.
    NotALibrary,
    /// A library for another processor.
    WrongMachine,
    /// The agent wasn't allowed to look.
    NotSeen,
}

/// How a container stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Outcome {
    /// Every training process has every library.
    Live,
    /// Some have, some haven't, or not all of them.
    PartlyLive,
    /// None has any.
    NotLive,
    /// It can't be told.
    Unknown,
}

/// The verdict on a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// How it stands.
    pub outcome: Outcome,
    /// Why.
    pub reason: Why,
    /// What was seen and what to do.
    pub message: String,
    /// How many processes were judged.
    pub judged: usize,
    /// What is missing where, at most [`MOST_SHORTFALLS`] of it.
    pub shortfalls: Vec<Shortfall>,
}

/// A library that a process doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortfall {
    /// The process, by its number on the host.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// The library.
    pub library: String,
    /// Why it hasn't got it.
    pub why: Why,
}

/// As many shortfalls as a verdict lists.
pub const MOST_SHORTFALLS: usize = 16;

/// Judges a container by its processes.
pub fn judge(processes: &[Observed], grace: Duration) -> Verdict {
    let container = Container::of(processes);
    let settled = || processes.iter().filter(|process| process.age >= grace);
    let of = |role: Role| settled().filter(|process| process.role == role).collect::<Vec<_>>();
    let workers = [Role::Python, Role::Other].into_iter().map(of).find(|workers| !workers.is_empty());
    if let Some(workers) = workers {
        return container.judge(&workers);
    }
    let helpers = of(Role::Helper);
    // What the image lacks it lacks for every program.
    let lacking = container.judge(&helpers);
    if matches!(
        lacking.reason,
        Why::FileMissing | Why::NotALibrary | Why::WrongArchitecture | Why::NoPermission
    ) {
        return lacking;
    }
    if processes.is_empty() {
        unknown(Why::NoProcess)
    } else if processes.iter().any(|process| process.age < grace) {
        unknown(Why::TooYoung)
    } else {
        unknown(Why::NoTrainingProcess)
    }
}

/// A verdict that tells nothing but why.
pub(super) fn unknown(reason: Why) -> Verdict {
    Verdict {
        outcome: Outcome::Unknown,
        reason,
        message: message(reason, ""),
        judged: 0,
        shortfalls: Vec::new(),
    }
}

/// What the processes of a container tell about one another.
struct Container<'a> {
    first: Option<&'a Observed>,
    processes: &'a [Observed],
}

impl<'a> Container<'a> {
    fn of(processes: &'a [Observed]) -> Self {
        let first = processes.iter().min_by_key(|process| (process.started, process.pid));
        Self { first, processes }
    }

    fn judge(&self, workers: &[&Observed]) -> Verdict {
        let mut shortfalls = Vec::new();
        let (mut live, mut hidden, mut unseen) = (0_usize, 0_usize, false);
        for worker in workers {
            let Some(libraries) = &worker.libraries else {
                unseen = true;
                continue;
            };
            for library in libraries {
                match self.why(worker, library) {
                    Why::PreloadLive => live += 1,
                    Why::EnvironmentHidden => hidden += 1,
                    Why::NoPermission => unseen = true,
                    why => shortfalls.push(Shortfall {
                        pid: worker.pid,
                        program: worker.name.clone(),
                        library: library.path.clone(),
                        why,
                    }),
                }
            }
        }
        let judged = workers.len();
        let Some(first) = shortfalls.first() else {
            return match (live, hidden) {
                _ if unseen => unknown(Why::NoPermission),
                (0, 0) => unknown(Why::NoProcess),
                (0, _) => unknown(Why::EnvironmentHidden),
                _ => Verdict {
                    outcome: Outcome::Live,
                    reason: Why::PreloadLive,
                    message: message(Why::PreloadLive, ""),
                    judged,
                    shortfalls,
                },
            };
        };
        let reason = first.why;
        let outcome = if live + hidden > 0 { Outcome::PartlyLive } else { Outcome::NotLive };
        let example = format!(" {} in process {} ({})", first.library, first.pid, first.program);
        let message = message(reason, &example);
        shortfalls.truncate(MOST_SHORTFALLS);
        Verdict { outcome, reason, message, judged, shortfalls }
    }

    /// How one library stands in one process. TaskD's Python side opens libtaskd.so itself later
    /// (`taskd/python/cython_api/cython_api.py`), so memory alone proves no preload; the environment has to agree.
    fn why(&self, worker: &Observed, library: &Library) -> Why {
        if library.named.is_none() {
            return match library.environment {
                Environment::Hidden if library.mapped => Why::EnvironmentHidden,
                Environment::Hidden => Why::NotMapped,
                Environment::Preload => Why::Overwritten,
                Environment::Without if self.first_named(worker, library) => Why::ClearedByEntrypoint,
                Environment::Without => Why::NotInEnvironment,
            };
        }
        if library.mapped {
            return Why::PreloadLive;
        }
        match library.file {
            Some(FileFact::Missing) => Why::FileMissing,
            Some(FileFact::NotALibrary) => Why::NotALibrary,
            Some(FileFact::WrongMachine) => Why::WrongArchitecture,
            Some(FileFact::NotSeen) => Why::NoPermission,
            Some(FileFact::Sound) | None if self.elsewhere_mapped(worker, library) => Why::MappedInShellOnly,
            Some(FileFact::Sound) | None => Why::NotMapped,
        }
    }

    /// Whether the container's first process has the library in its LD_PRELOAD.
    fn first_named(&self, worker: &Observed, library: &Library) -> bool {
        self.first.is_some_and(|first| {
            first.pid != worker.pid && twin(first, library).is_some_and(|twin| twin.named.is_some())
        })
    }

    /// Whether a starter of the container has the library in its memory.
    fn elsewhere_mapped(&self, worker: &Observed, library: &Library) -> bool {
        let mut others =
            self.processes.iter().filter(|other| other.pid != worker.pid && other.role == Role::Helper);
        others.any(|other| twin(other, library).is_some_and(|twin| twin.mapped && twin.named.is_some()))
    }
}

fn twin<'a>(process: &'a Observed, library: &Library) -> Option<&'a Library> {
    process.libraries.as_ref()?.iter().find(|twin| twin.path == library.path)
}

fn message(reason: Why, example: &str) -> String {
    let description = reason.description().trim_end_matches('.');
    let example = if example.is_empty() { String::new() } else { format!(":{example}") };
    match reason.advice() {
        "" => format!("{description}{example}"),
        advice => format!("{description}{example}; {advice}"),
    }
}

impl Outcome {
    /// Whether a reason can go with it.
    pub const fn fits(self, reason: Why) -> bool {
        match self {
            Self::Live => matches!(reason.kind(), Kind::Live),
            Self::PartlyLive | Self::NotLive => matches!(reason.kind(), Kind::NotLive),
            Self::Unknown => matches!(reason.kind(), Kind::Unknown),
        }
    }
}
