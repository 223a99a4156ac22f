//! Observes the processes of injected containers through procfs.
//!
//! The control group of every process is read; the rest only of processes in injected containers. Processes that end
//! meanwhile are skipped. Reading environment, memory map and root of another user's process needs `PTRACE_MODE_READ`
//! (proc_pid_environ(5)), and the environment also read permission for the user's files: in a Pod SYS_PTRACE,
//! DAC_READ_SEARCH and the host's /proc.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use procfs::process::{FDTarget, Process};
use procfs::{FromRead as _, ProcError, ProcResult, Uptime};
use swansong_api::launcher_hook::MODULE_FILE;
use swansong_api::preload::{entries, file_name};

use super::launcher::{Python, VARIABLES};
use super::pod::{InjectedContainer, InjectedPod};
use super::verdict::{Environment, FileState, Library, ObservedProcess, Role};
use crate::host::{ElfError, HostRoot, Machine, PathError, cgroup, shared_object, variable};
use crate::trainer::training_of;

/// Programs that start or supervise others. They show problems of the image, but don't train.
const HELPERS: [&str; 17] = [
    "sh",
    "bash",
    "dash",
    "ash",
    "zsh",
    "ksh",
    "busybox",
    "tini",
    "dumb-init",
    "catatonit",
    "sleep",
    "tail",
    "tee",
    "cat",
    "su",
    "sudo",
    "sshd",
];

/// The kernel limits the initial environment to a quarter of the stack limit.
const MAX_ENVIRONMENT: u64 = 8 << 20;

/// Reading fails with it if the process has ended.
const ESRCH: i32 = 3;

/// No process could be observed.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The path isn't a procfs.
    #[error("{path} can't be read ({problem}); mount /proc of the host there")]
    Proc {
        /// The file or folder below it.
        path: String,
        /// The error of the access.
        problem: String,
    },
}

/// The processes of each container, by index of the Pod and of its container.
pub(super) type Processes = HashMap<(usize, usize), Vec<ObservedProcess>>;

pub(super) fn observe(proc: &Path, pods: &[InjectedPod], machine: Machine) -> Result<Processes, ScanError> {
    let failed = |path: &Path, problem: String| ScanError::Proc { path: path.display().to_string(), problem };
    let uptime =
        uptime(&proc.join("uptime")).map_err(|error| failed(&proc.join("uptime"), error.to_string()))?;
    let mut wanted: HashMap<&str, (usize, usize)> = HashMap::new();
    for (p, pod) in pods.iter().enumerate() {
        let started = pod
            .containers
            .iter()
            .enumerate()
            .filter_map(|(c, container)| Some((container.id.as_deref()?, c)));
        wanted.extend(started.map(|(id, c)| (id, (p, c))));
    }
    let mut processes = Processes::new();
    let listing = std::fs::read_dir(proc).map_err(|error| failed(proc, error.to_string()))?;
    for entry in listing {
        let Ok(entry) = entry else { continue };
        if !entry.file_name().to_str().is_some_and(|name| name.bytes().all(|c| c.is_ascii_digit())) {
            continue;
        }
        let Ok(process) = Process::new_with_root(entry.path()) else { continue };
        let Ok(Some(path)) = cgroup::of(&process) else { continue };
        let Some(&(p, c)) = path.container.as_deref().and_then(|id| wanted.get(id)) else { continue };
        if !path.pod.eq_ignore_ascii_case(&pods[p].uid) {
            continue;
        }
        if let Some(observed) = observe_process(&process, proc, &pods[p].containers[c], uptime, machine) {
            processes.entry((p, c)).or_default().push(observed);
        }
    }
    Ok(processes)
}

fn uptime(path: &Path) -> ProcResult<Duration> {
    Ok(Uptime::from_file(path)?.uptime_duration())
}

/// Observes one process; `None` if it has ended.
fn observe_process(
    process: &Process,
    proc: &Path,
    container: &InjectedContainer,
    uptime: Duration,
    machine: Machine,
) -> Option<ObservedProcess> {
    let stat = process.stat().ok()?;
    if matches!(stat.state, 'Z' | 'X' | 'x') {
        return None;
    }
    let started = Duration::from_secs(1)
        .saturating_mul(u32::try_from(stat.starttime / procfs::ticks_per_second()).ok()?);
    let name = process
        .exe()
        .ok()
        .and_then(|exe| Some(exe.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_owned()))
        .unwrap_or(stat.comm);
    let libraries = match library_states(process, proc, &container.libraries, machine) {
        Ok(found) => Some(found),
        Err(InspectError::Ended) => return None,
        Err(InspectError::Denied) => None,
    };
    let role = role(&name);
    let python = (role == Role::Python && !container.launcher.is_empty()).then(|| python(process));
    let root = proc.join(stat.pid.to_string()).join("root");
    let training =
        (role == Role::Python).then(|| training_of(process, &root, &environ(process).ok()?)).flatten();
    Some(ObservedProcess {
        pid: stat.pid,
        started: stat.starttime,
        age: uptime.saturating_sub(started),
        name,
        role,
        libraries,
        python,
        training,
    })
}

fn python(process: &Process) -> Python {
    let has_hook = process.fd().ok().map(|mut files| {
        files.any(|file| {
            matches!(file.map(|file| file.target), Ok(FDTarget::Path(path)) if path.to_string_lossy().contains(MODULE_FILE))
        })
    });
    let environ = environ(process).ok();
    let value = |name: &str| variable(environ.as_deref()?, name).filter(|value| !value.is_empty());
    let options = process.cmdline().unwrap_or_default();
    let mut options = options.iter().skip(1).take_while(|option| option.starts_with('-') && option.len() > 1);
    Python {
        has_hook,
        is_site_disabled: options.any(|option| !option.starts_with("--") && option.contains('S')),
        prefix: value("VIRTUAL_ENV").or_else(|| value("CONDA_PREFIX")),
        variables: environ
            .as_ref()
            .map(|_| VARIABLES.into_iter().filter(|name| value(name).is_some()).collect()),
    }
}

fn environ(process: &Process) -> ProcResult<Vec<u8>> {
    let mut environ = Vec::new();
    process.open_relative("environ")?.take(MAX_ENVIRONMENT).read_to_end(&mut environ)?;
    Ok(environ)
}

fn role(name: &str) -> Role {
    if name.starts_with("python") || name.starts_with("pypy") {
        Role::Python
    } else if HELPERS.contains(&name) {
        Role::Helper
    } else {
        Role::Other
    }
}

/// Why a process can't be inspected.
enum InspectError {
    Ended,
    Denied,
}

impl From<ProcError> for InspectError {
    fn from(error: ProcError) -> Self {
        match error {
            ProcError::NotFound(_) => Self::Ended,
            ProcError::Io(error, _) => error.into(),
            _ => Self::Denied,
        }
    }
}

impl From<io::Error> for InspectError {
    fn from(error: io::Error) -> Self {
        let has_ended = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH);
        if has_ended { Self::Ended } else { Self::Denied }
    }
}

fn library_states(
    process: &Process,
    proc: &Path,
    libraries: &[String],
    machine: Machine,
) -> Result<Vec<Library>, InspectError> {
    let preload = preload(&environ(process)?);
    // Entries are matched by file name, since the folder doesn't matter once the library is loaded.
    let matches: Vec<Option<String>> = libraries
        .iter()
        .map(|library| match &preload {
            Preload::Value(value) => {
                let entry = entries(value).find(|entry| file_name(entry) == file_name(library));
                entry.map(str::to_owned)
            }
            _ => None,
        })
        .collect();
    let files: Vec<&str> = libraries.iter().map(|library| file_name(library)).collect();
    let mut mapped = mapped(process, &files)?;
    let mut found = Vec::new();
    for (index, (library, entry)) in libraries.iter().zip(matches).enumerate() {
        let mut file = None;
        if let Some(entry) = &entry
            && !mapped[index]
        {
            let (state, real) = file_state(process, proc, entry, machine)?;
            file = Some(state);
            // The memory map shows the target of a link.
            if let Some(real) = real
                && real != file_name(library)
            {
                mapped[index] = self::mapped(process, &[&real])?[0];
            }
        }
        let library = library.clone();
        found.push(Library {
            path: library,
            environment: preload.kind(),
            entry,
            mapped: mapped[index],
            file,
        });
    }
    Ok(found)
}

/// LD_PRELOAD in an environment.
#[derive(Debug, PartialEq, Eq)]
enum Preload {
    Value(String),
    Absent,
    Hidden,
}

impl Preload {
    const fn kind(&self) -> Environment {
        match self {
            Self::Value(_) => Environment::WithPreload,
            Self::Absent => Environment::WithoutPreload,
            Self::Hidden => Environment::Hidden,
        }
    }
}

/// ld.so uses the last of several entries.
fn preload(environ: &[u8]) -> Preload {
    let variables = environ.split(|&c| c == 0);
    let mut values = variables.filter_map(|variable| variable.strip_prefix(b"LD_PRELOAD="));
    if let Some(value) = values.next_back().filter(|value| !value.is_empty()) {
        return Preload::Value(String::from_utf8_lossy(value).into_owned());
    }
    // setproctitle overwrites the environment with zeros.
    if !environ.is_empty() && !environ.contains(&b'=') { Preload::Hidden } else { Preload::Absent }
}

/// Whether the memory map contains each of these file names. Maps of training processes have thousands of lines, so none
/// is kept.
fn mapped(process: &Process, names: &[&str]) -> Result<Vec<bool>, InspectError> {
    let mut found = vec![false; names.len()];
    let mut reader = BufReader::with_capacity(32 << 10, process.open_relative("maps")?);
    let mut line = Vec::with_capacity(256);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 || found.iter().all(|&found| found) {
            return Ok(found);
        }
        let path = line.strip_suffix(b"\n").unwrap_or(&line);
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        for (found, name) in found.iter_mut().zip(names) {
            *found |= path.strip_suffix(name.as_bytes()).is_some_and(|folder| folder.ends_with(b"/"));
        }
    }
}

/// The state of an entry of LD_PRELOAD in the process's own root, and the file name of its target.
fn file_state(
    process: &Process,
    proc: &Path,
    entry: &str,
    machine: Machine,
) -> Result<(FileState, Option<String>), InspectError> {
    if !entry.contains('/') {
        // The loader's search can't be reproduced from outside.
        return Ok((FileState::Valid, None));
    }
    let root = match HostRoot::open(&proc.join(process.pid().to_string()).join("root")) {
        Ok(root) => root,
        Err(PathError::Missing) => return Err(InspectError::Ended),
        Err(_) => return Ok((FileState::NotReadable, None)),
    };
    let found = match root.resolve(entry) {
        Ok(found) => found,
        Err(PathError::Missing | PathError::Loop) => return Ok((FileState::Missing, None)),
        Err(_) => return Ok((FileState::NotReadable, None)),
    };
    let real = found.resolved().file_name().map(|name| name.to_string_lossy().into_owned());
    let state = match shared_object(&found, machine) {
        Ok(()) => FileState::Valid,
        Err(ElfError::WrongMachine(_) | ElfError::WrongClass) => FileState::WrongMachine,
        Err(ElfError::Path(_)) => FileState::NotReadable,
        Err(_) => FileState::NotALibrary,
    };
    Ok((state, real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ld_preload_in_an_environment() {
        for (environ, expected) in [
            (&b"A=1\0LD_PRELOAD=/a.so\0B=2\0"[..], Preload::Value("/a.so".to_owned())),
            (b"LD_PRELOAD=/a.so\0LD_PRELOAD=/b.so\0", Preload::Value("/b.so".to_owned())),
            (b"XLD_PRELOAD=/a.so\0", Preload::Absent),
            (b"LD_PRELOAD=\0A=1\0", Preload::Absent),
            (b"", Preload::Absent),
            (b"\0\0\0\0", Preload::Hidden),
            (b"trainer rank 3\0\0\0", Preload::Hidden),
        ] {
            assert_eq!(preload(environ), expected, "{:?}", String::from_utf8_lossy(environ));
        }
    }

    #[test]
    fn recognises_roles_by_program_names() {
        for (name, expected) in [
            ("python3.10", Role::Python),
            ("python", Role::Python),
            ("bash", Role::Helper),
            ("torchrun", Role::Other),
            ("bashful", Role::Other),
        ] {
            assert_eq!(role(name), expected, "{name}");
        }
    }
}
