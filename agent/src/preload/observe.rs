//! The edge to procfs: what is seen of the processes of injected containers.
//!
//! The control group of every process is read, and more of those only that run in a container asked about. A process
//! that ends meanwhile is no error. Reading environment, memory map and root of another user's process needs
//! `PTRACE_MODE_READ` (proc_pid_environ(5)), and the environment besides the right to read another user's files: in a pod
//! SYS_PTRACE, DAC_READ_SEARCH and the host's /proc.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use procfs::process::Process;
use procfs::{FromRead as _, ProcError, ProcResult, Uptime};

use super::cgroup;
use super::pod::{InjectedPod, entries, file_name};
use super::verdict::{Environment, FileFact, Library, Observed, Role};
use crate::elf::{ElfFault, Machine, shared_object};
use crate::root::{HostRoot, LookError};

/// Programs that only start or watch others. They are judged for what the image lacks, not for the training.
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

/// ld.so reads its environment from the initial stack, which the kernel limits to a quarter of the stack's limit.
const LARGEST_ENVIRONMENT: u64 = 8 << 20;

/// `ESRCH` of Linux: the process ended between opening and reading.
const GONE: i32 = 3;

/// Why nothing could be seen at all.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// There is no procfs.
    #[error("{path} can't be read ({problem}); mount /proc of the host there")]
    Proc {
        /// Where it was looked for.
        path: String,
        /// What was wrong.
        problem: String,
    },
}

/// The processes of each container asked about: by index of the pod and of its container.
pub(super) type Seen = HashMap<(usize, usize), Vec<Observed>>;

pub(super) fn observe(proc: &Path, pods: &[InjectedPod], machine: Machine) -> Result<Seen, ScanError> {
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
    let mut seen = Seen::new();
    let listing = std::fs::read_dir(proc).map_err(|error| failed(proc, error.to_string()))?;
    for entry in listing {
        let Ok(entry) = entry else { continue };
        if !entry.file_name().to_str().is_some_and(|name| name.bytes().all(|c| c.is_ascii_digit())) {
            continue;
        }
        let Ok(process) = Process::new_with_root(entry.path()) else { continue };
        let Ok(Some(place)) = cgroup::of(&process) else { continue };
        let Some(&(p, c)) = place.container.as_deref().and_then(|id| wanted.get(id)) else { continue };
        if !place.pod.eq_ignore_ascii_case(&pods[p].uid) {
            continue;
        }
        if let Some(observed) = look(&process, proc, &pods[p].containers[c].libraries, uptime, machine) {
            seen.entry((p, c)).or_default().push(observed);
        }
    }
    Ok(seen)
}

fn uptime(path: &Path) -> ProcResult<Duration> {
    Ok(Uptime::from_file(path)?.uptime_duration())
}

/// One process; `None` if it has ended.
fn look(
    process: &Process,
    proc: &Path,
    libraries: &[String],
    uptime: Duration,
    machine: Machine,
) -> Option<Observed> {
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
    let libraries = match inside(process, proc, libraries, machine) {
        Ok(found) => Some(found),
        Err(Inside::Gone) => return None,
        Err(Inside::NotAllowed) => None,
    };
    let role = role(&name);
    Some(Observed {
        pid: stat.pid,
        started: stat.starttime,
        age: uptime.saturating_sub(started),
        name,
        role,
        libraries,
    })
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

/// Why a process can't be looked into.
enum Inside {
    Gone,
    NotAllowed,
}

impl From<ProcError> for Inside {
    fn from(error: ProcError) -> Self {
        match error {
            ProcError::NotFound(_) => Self::Gone,
            ProcError::Io(error, _) => error.into(),
            _ => Self::NotAllowed,
        }
    }
}

impl From<io::Error> for Inside {
    fn from(error: io::Error) -> Self {
        let gone = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(GONE);
        if gone { Self::Gone } else { Self::NotAllowed }
    }
}

fn inside(
    process: &Process,
    proc: &Path,
    libraries: &[String],
    machine: Machine,
) -> Result<Vec<Library>, Inside> {
    let mut environ = Vec::new();
    process.open_relative("environ")?.take(LARGEST_ENVIRONMENT).read_to_end(&mut environ)?;
    let preload = preload(&environ);
    // Of each library, the entry that names it, under whatever folder: what counts is that it is loaded.
    let named: Vec<Option<String>> = libraries
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
    for (index, (library, named)) in libraries.iter().zip(named).enumerate() {
        let mut file = None;
        if let Some(entry) = &named
            && !mapped[index]
        {
            let (fact, real) = file_fact(process, proc, entry, machine)?;
            file = Some(fact);
            // The map shows the file that a link leads to.
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
            named,
            mapped: mapped[index],
            file,
        });
    }
    Ok(found)
}

/// What an environment says of LD_PRELOAD.
#[derive(Debug, PartialEq, Eq)]
enum Preload {
    Value(String),
    Without,
    Hidden,
}

impl Preload {
    const fn kind(&self) -> Environment {
        match self {
            Self::Value(_) => Environment::Preload,
            Self::Without => Environment::Without,
            Self::Hidden => Environment::Hidden,
        }
    }
}

/// Of several entries ld.so takes the last.
fn preload(environ: &[u8]) -> Preload {
    let variables = environ.split(|&c| c == 0);
    let mut values = variables.filter_map(|variable| variable.strip_prefix(b"LD_PRELOAD="));
    if let Some(value) = values.next_back().filter(|value| !value.is_empty()) {
        return Preload::Value(String::from_utf8_lossy(value).into_owned());
    }
    // setproctitle moves the environment away and fills its place with zeros.
    if !environ.is_empty() && !environ.contains(&b'=') { Preload::Hidden } else { Preload::Without }
}

/// Which of these file names the memory map holds. Maps of training processes have thousands of lines; none is kept.
fn mapped(process: &Process, names: &[&str]) -> Result<Vec<bool>, Inside> {
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

/// What stands in the process's own root where LD_PRELOAD points, and the name of the file that it leads to.
fn file_fact(
    process: &Process,
    proc: &Path,
    entry: &str,
    machine: Machine,
) -> Result<(FileFact, Option<String>), Inside> {
    if !entry.contains('/') {
        // The loader searches for it, which can't be told from outside.
        return Ok((FileFact::Sound, None));
    }
    let root = match HostRoot::open(&proc.join(process.pid().to_string()).join("root")) {
        Ok(root) => root,
        Err(LookError::Missing) => return Err(Inside::Gone),
        Err(_) => return Ok((FileFact::NotSeen, None)),
    };
    let found = match root.follow(entry) {
        Ok(found) => found,
        Err(LookError::Missing | LookError::Loop) => return Ok((FileFact::Missing, None)),
        Err(_) => return Ok((FileFact::NotSeen, None)),
    };
    let real = found.resolved().file_name().map(|name| name.to_string_lossy().into_owned());
    let fact = match shared_object(&found, machine) {
        Ok(()) => FileFact::Sound,
        Err(ElfFault::WrongMachine(_) | ElfFault::WrongClass) => FileFact::WrongMachine,
        Err(ElfFault::Look(_)) => FileFact::NotSeen,
        Err(_) => FileFact::NotALibrary,
    };
    Ok((fact, real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments() {
        for (environ, expected) in [
            (&b"A=1\0LD_PRELOAD=/a.so\0B=2\0"[..], Preload::Value("/a.so".to_owned())),
            (b"LD_PRELOAD=/a.so\0LD_PRELOAD=/b.so\0", Preload::Value("/b.so".to_owned())),
            (b"XLD_PRELOAD=/a.so\0", Preload::Without),
            (b"LD_PRELOAD=\0A=1\0", Preload::Without),
            (b"", Preload::Without),
            (b"\0\0\0\0", Preload::Hidden),
            (b"trainer rank 3\0\0\0", Preload::Hidden),
        ] {
            assert_eq!(preload(environ), expected, "{:?}", String::from_utf8_lossy(environ));
        }
    }

    #[test]
    fn roles() {
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
