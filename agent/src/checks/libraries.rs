//! Libraries: those of the driver, and those of CANN and TaskD if the host has them.
//!
//! The container runtime silently skips a missing library and mounts a folder in its place as a folder
//! (`ascend-docker-runtime/cli/src/u_mount.c`).

use std::path::PathBuf;

use super::product::{Product, Requirement};
use super::trust::{self, Trust};
use super::{Settings, dependencies, path_finding};
use crate::finding::{Finding, Reason};
use crate::host::{ElfError, Entry, HostRoot, Machine, PathError, shared_object};

/// Below the driver's folder, in the order of `LD_LIBRARY_PATH` in `ascend-device-plugin/build/Dockerfile`.
const FOLDERS: [&str; 3] = ["lib64", "lib64/driver", "lib64/common"];

/// Other folders with the driver's libraries (`npu-exporter.yaml`; Atlas 200I A2 and 500 A2 have `/usr/lib64`).
const OTHER_FOLDERS: [&str; 2] = ["/usr/local/dcmi", "/usr/lib64"];

const REINSTALL: &str = "reinstall the driver, or set `driver.path` if it is elsewhere";

/// Checks all libraries of the driver.
pub(super) fn driver(
    root: &HostRoot,
    driver: &str,
    settings: &Settings,
    product: &Product,
    machine: Machine,
) -> Finding {
    let folders = FOLDERS.map(|folder| format!("{driver}/{folder}"));
    check_driver(root, &folders, settings, product, machine).map_or_else(
        |finding| finding,
        |count| {
            let machine = machine.name();
            let message =
                format!("the driver's libraries, {count} in number, are shared objects for {machine}");
            Finding::at(&*folders[0], Reason::LibrariesValid, message)
        },
    )
}

/// The number of libraries, or the finding of the first problem.
fn check_driver(
    root: &HostRoot,
    folders: &[String],
    settings: &Settings,
    product: &Product,
    machine: Machine,
) -> Result<usize, Finding> {
    let mut count = 0;
    for (index, folder) in folders.iter().enumerate() {
        // The first contains the others and exists on every product.
        let requirement =
            if index == 0 { Requirement::Yes } else { product.requires(|profile| profile.library_folders) };
        count += check_folder(root, folder, requirement, product, machine)?;
    }
    let search = search_path(folders, settings);
    for library in &settings.driver.libraries {
        let entry = select(root, library, &search, settings.driver.trust, machine)?;
        if let Some(missing) = dependencies::missing(root, &entry, &search, machine) {
            let dependencies::MissingLibrary { name, needed_by } = missing;
            let message = format!(
                "{library} can't be loaded: {needed_by} needs {name}, which is neither in the driver's folders nor in the loader's; {REINSTALL}"
            );
            return Err(Finding::at(needed_by, Reason::DependencyMissing, message).about([name]));
        }
    }
    Ok(count)
}

/// The folders in which a library of the driver is searched, in this order.
fn search_path<'a>(folders: &'a [String], settings: &'a Settings) -> Vec<&'a str> {
    let configured = settings.driver.library_folders.iter().map(String::as_str);
    folders.iter().map(String::as_str).chain(OTHER_FOLDERS).chain(configured).collect()
}

/// A library of the driver and the folders of its dependencies. Paths are those of this process, without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadableLibrary {
    pub library: PathBuf,
    /// The driver's folders, for `LD_LIBRARY_PATH`.
    pub folders: Vec<PathBuf>,
}

/// Finds a library of the driver in the order and by the ownership rule of MindCluster's components, and checks that it is
/// a shared object for this machine.
///
/// # Errors
///
/// A finding that says what is wrong and what to do.
pub fn loadable_library(
    root: &HostRoot,
    settings: &Settings,
    library: &str,
) -> Result<LoadableLibrary, Finding> {
    let driver = super::driver::path(root, settings.driver.path.as_deref());
    let folders = FOLDERS.map(|folder| format!("{driver}/{folder}"));
    let local_path = |entry: &Entry| {
        let resolved = entry.resolved();
        root.path().join(resolved.strip_prefix("/").unwrap_or(resolved))
    };
    let search = search_path(&folders, settings);
    let entry = select(root, library, &search, settings.driver.trust, Machine::HOST)?;
    let folders = folders.iter().filter_map(|folder| root.resolve(folder).ok());
    Ok(LoadableLibrary {
        library: local_path(&entry),
        folders: folders.map(|folder| local_path(&folder)).collect(),
    })
}

/// Checks every shared object directly in a folder, and returns their number.
fn check_folder(
    root: &HostRoot,
    folder: &str,
    requirement: Requirement,
    product: &Product,
    machine: Machine,
) -> Result<usize, Finding> {
    let names = match root.list(folder) {
        Ok(names) => names,
        Err(PathError::Missing) if matches!(requirement, Requirement::No(_)) => return Ok(0),
        Err(PathError::Missing) if requirement == Requirement::Unknown => {
            let message = format!(
                "{folder} is missing; some product families don't have it, and this node's family is unknown ({}); set `family`",
                product.evidence
            );
            return Err(Finding::at(folder, Reason::FamilyUnknown, message));
        }
        Err(PathError::OtherKind(_)) => {
            let message = format!("{folder} isn't a folder; {REINSTALL}");
            return Err(Finding::at(folder, Reason::NotAFolder, message));
        }
        Err(error) => return Err(path_finding(root, folder, &error, Reason::FileMissing, REINSTALL)),
    };
    let libraries = names.iter().filter_map(|name| name.to_str()).filter(|name| is_library(name));
    let mut count = 0;
    for name in libraries {
        open_library(root, &format!("{folder}/{name}"), machine, REINSTALL)?;
        count += 1;
    }
    Ok(count)
}

/// Whether a name is `libx.so` or `libx.so.1`.
fn is_library(name: &str) -> bool {
    name.split_once(".so").is_some_and(|(_, rest)| {
        rest.is_empty()
            || rest.strip_prefix('.').is_some_and(|n| n.bytes().all(|c| c == b'.' || c.is_ascii_digit()))
    })
}

/// The library that MindCluster's components load: the first trusted one, whether or not it is valid.
fn select(
    root: &HostRoot,
    library: &str,
    folders: &[&str],
    trust: Trust,
    machine: Machine,
) -> Result<Entry, Finding> {
    let mut rejected = None;
    for folder in folders {
        let path = format!("{folder}/{library}");
        match root.resolve(&path) {
            Err(PathError::Missing) => {}
            Err(error) => {
                rejected
                    .get_or_insert_with(|| path_finding(root, &path, &error, Reason::FileMissing, REINSTALL));
            }
            Ok(entry) => match check_trust(root, &path, &entry, trust) {
                Ok(()) => return check_elf(&path, &entry, machine, REINSTALL).map(|()| entry),
                Err(finding) => {
                    rejected.get_or_insert(finding);
                }
            },
        }
    }
    Err(rejected.unwrap_or_else(|| {
        let path = format!("{}/{library}", folders.first().unwrap_or(&""));
        let message = format!("{library} is in none of {}; {REINSTALL}", folders.join(", "));
        Finding::at(path, Reason::FileMissing, message)
    }))
}

/// Checks libmspti.so on the host. TaskD applies the same ownership rule
/// (`taskd/go/framework_backend/worker/monitor/profiling/mspti_api.go`).
pub(super) fn mspti(root: &HostRoot, path: &str, trust: Trust, machine: Machine) -> Finding {
    const ADVICE: &str = "install CANN, or correct `hostLibraries.libmspti`";
    let checked =
        open_library(root, path, machine, ADVICE).and_then(|entry| check_trust(root, path, &entry, trust));
    checked.map_or_else(|finding| finding, |()| present(path))
}

/// Checks libtaskd.so on the host. TaskD refuses to load it through a link (`taskd/python/cython_api/cython_api.py`).
pub(super) fn taskd(root: &HostRoot, path: &str, machine: Machine) -> Finding {
    const ADVICE: &str = "install the TaskD wheel, or correct `hostLibraries.libtaskd`";
    if root.resolve_nofollow(path).is_ok_and(|entry| entry.metadata().is_symlink()) {
        let message = format!("{path} is a link, which TaskD refuses; replace it by the file");
        return Finding::at(path, Reason::LinkNotAccepted, message);
    }
    open_library(root, path, machine, ADVICE).map_or_else(|finding| finding, |_| present(path))
}

fn present(path: &str) -> Finding {
    Finding::at(path, Reason::Present, format!("{path} is a shared object for this machine"))
}

fn open_library(root: &HostRoot, path: &str, machine: Machine, advice: &str) -> Result<Entry, Finding> {
    let entry =
        root.resolve(path).map_err(|error| path_finding(root, path, &error, Reason::FileMissing, advice))?;
    check_elf(path, &entry, machine, advice)?;
    Ok(entry)
}

fn check_elf(path: &str, entry: &Entry, machine: Machine, advice: &str) -> Result<(), Finding> {
    let Err(error) = shared_object(entry, machine) else { return Ok(()) };
    let reason = match &error {
        ElfError::NotAFile(_) => Reason::NotAFile,
        ElfError::Empty => Reason::FileEmpty,
        ElfError::NotElf => Reason::NotElf,
        ElfError::WrongClass => Reason::WrongClass,
        ElfError::WrongMachine(_) => Reason::WrongMachine,
        ElfError::NotASharedObject => Reason::NotASharedObject,
        ElfError::Truncated => Reason::ElfTruncated,
        ElfError::Path(_) => Reason::NotReadable,
    };
    let machine = if reason == Reason::WrongMachine {
        format!(" and not for {}", machine.name())
    } else {
        String::new()
    };
    Err(Finding::at(path, reason, format!("{path} can't be loaded: {error}{machine}; {advice}")))
}

fn check_trust(root: &HostRoot, path: &str, entry: &Entry, trust: Trust) -> Result<(), Finding> {
    match trust::violation(root, path, entry, trust) {
        Ok(None) => Ok(()),
        Ok(Some(violation)) => {
            let message = format!(
                "MindCluster's components skip {path} because of {}: {}, or set `driver.trust: anyone` if none of them loads it",
                violation.path.display(),
                violation.problem
            );
            Err(Finding::at(path, Reason::NotTrusted, message))
        }
        Err(error) => Err(path_finding(root, path, &error, Reason::FileMissing, "check it again")),
    }
}
