//! Libraries: those of the driver, and those of CANN and TaskD where the host has them.
//!
//! A library that isn't there, or is a folder, is mounted into containers in silence or not at all
//! (`ascend-docker-runtime/cli/src/u_mount.c` skips what is missing), so it is looked at beforehand.

use std::path::PathBuf;

use super::product::{Demand, Product};
use super::trust::{self, Trust};
use super::unseen;
use crate::config::Config;
use crate::elf::{ElfFault, Machine, shared_object};
use crate::reason::Reason;
use crate::report::Finding;
use crate::root::{Entry, HostRoot, LookError};

/// Below the driver's folder, in the order of `LD_LIBRARY_PATH` in `ascend-device-plugin/build/Dockerfile`.
const FOLDERS: [&str; 3] = ["lib64", "lib64/driver", "lib64/common"];

/// Where libraries of the driver are besides (`npu-exporter.yaml`; Atlas 200I A2 and 500 A2 have `/usr/lib64`).
const ELSEWHERE: [&str; 2] = ["/usr/local/dcmi", "/usr/lib64"];

const REINSTALL: &str = "reinstall the driver, or set `driver.path` if it is elsewhere";

/// Everything about the driver's libraries.
pub(super) fn driver(
    root: &HostRoot,
    driver: &str,
    config: &Config,
    product: &Product,
    machine: Machine,
) -> Finding {
    let folders: Vec<String> = FOLDERS.iter().map(|folder| format!("{driver}/{folder}")).collect();
    let mut looked_at = 0;
    for (index, folder) in folders.iter().enumerate() {
        // The first holds the others and is on every product.
        let demand =
            if index == 0 { Demand::Yes } else { product.demands(|profile| profile.library_folders) };
        match folder_of_libraries(root, folder, demand, product, machine) {
            Ok(count) => looked_at += count,
            Err(finding) => return finding,
        }
    }
    let places = places(&folders, config);
    for library in &config.driver.libraries {
        if let Err(finding) = chosen(root, library, &places, config.driver.trust, machine) {
            return finding;
        }
    }
    let message =
        format!("the driver's libraries, {looked_at} in number, are shared objects for {}", machine.name());
    Finding::at(&*folders[0], Reason::LibrariesSound, message)
}

/// Where a library of the driver is looked for, in this order.
fn places<'a>(folders: &'a [String], config: &'a Config) -> Vec<&'a str> {
    let ours = config.driver.library_folders.iter().map(String::as_str);
    folders.iter().map(String::as_str).chain(ELSEWHERE).chain(ours).collect()
}

/// A library of the driver, and what its loader has to know. Paths are those of this process, without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loadable {
    /// The library.
    pub library: PathBuf,
    /// The driver's folders, for `LD_LIBRARY_PATH`.
    pub folders: Vec<PathBuf>,
}

/// The library of the driver that MindCluster's components would load: found in the same order, by the same rule of
/// trust, and a shared object for this machine.
///
/// # Errors
///
/// With what is wrong, and what to do.
pub fn loadable(root: &HostRoot, config: &Config, library: &str) -> Result<Loadable, Finding> {
    let driver = super::driver::path(root, config);
    let folders = FOLDERS.map(|folder| format!("{driver}/{folder}"));
    let here = |entry: &Entry| {
        let resolved = entry.resolved();
        root.at().join(resolved.strip_prefix("/").unwrap_or(resolved))
    };
    let chosen = chosen(root, library, &places(&folders, config), config.driver.trust, Machine::HERE)?;
    let folders = folders.iter().filter_map(|folder| root.follow(folder).ok());
    Ok(Loadable { library: here(&chosen), folders: folders.map(|folder| here(&folder)).collect() })
}

/// Every shared object directly in a folder; how many there are.
fn folder_of_libraries(
    root: &HostRoot,
    folder: &str,
    demand: Demand,
    product: &Product,
    machine: Machine,
) -> Result<usize, Finding> {
    let names = match root.list(folder) {
        Ok(names) => names,
        Err(LookError::Missing) if matches!(demand, Demand::No(_)) => return Ok(0),
        Err(LookError::Missing) if demand == Demand::Unknown => {
            let message = format!(
                "{folder} is missing, which some product families allow, and this node's family isn't known ({}); set `family`",
                product.evidence
            );
            return Err(Finding::at(folder, Reason::FamilyUnknown, message));
        }
        Err(LookError::OtherKind(_)) => {
            let message = format!("{folder} isn't a folder; {REINSTALL}");
            return Err(Finding::at(folder, Reason::NotAFolder, message));
        }
        Err(error) => return Err(unseen(root, folder, &error, Reason::FileMissing, REINSTALL)),
    };
    let libraries = names.iter().filter_map(|name| name.to_str()).filter(|name| is_library(name));
    let mut count = 0;
    for name in libraries {
        look(root, &format!("{folder}/{name}"), machine, REINSTALL)?;
        count += 1;
    }
    Ok(count)
}

/// `libx.so` and `libx.so.1`.
fn is_library(name: &str) -> bool {
    name.split_once(".so").is_some_and(|(_, rest)| {
        rest.is_empty()
            || rest.strip_prefix('.').is_some_and(|n| n.bytes().all(|c| c == b'.' || c.is_ascii_digit()))
    })
}

/// The library that MindCluster's components would load: the first that they trust, sound or not.
fn chosen(
    root: &HostRoot,
    library: &str,
    places: &[&str],
    trust: Trust,
    machine: Machine,
) -> Result<Entry, Finding> {
    let mut refused = None;
    for place in places {
        let path = format!("{place}/{library}");
        match root.follow(&path) {
            // A dangling link is there for the components, and they stumble over it too.
            Err(LookError::Missing) => {}
            Err(error) => {
                refused.get_or_insert_with(|| unseen(root, &path, &error, Reason::FileMissing, REINSTALL));
            }
            Ok(entry) => match trusted(root, &path, &entry, trust) {
                Ok(()) => return sound(&path, &entry, machine, REINSTALL).map(|()| entry),
                Err(finding) => {
                    refused.get_or_insert(finding);
                }
            },
        }
    }
    Err(refused.unwrap_or_else(|| {
        let path = format!("{}/{library}", places.first().unwrap_or(&""));
        let message = format!("{library} is in none of {}; {REINSTALL}", places.join(", "));
        Finding::at(path, Reason::FileMissing, message)
    }))
}

/// libmspti.so on the host. TaskD finds it by the same rule of trust
/// (`taskd/go/framework_backend/worker/monitor/profiling/mspti_api.go`).
pub(super) fn mspti(root: &HostRoot, path: &str, trust: Trust, machine: Machine) -> Finding {
    const ADVICE: &str = "install CANN, or correct `hostLibraries.libmspti`";
    let looked = look(root, path, machine, ADVICE).and_then(|entry| trusted(root, path, &entry, trust));
    looked.map_or_else(|finding| finding, |()| present(path))
}

/// libtaskd.so on the host. TaskD refuses to load it through a link (`taskd/python/cython_api/cython_api.py`).
pub(super) fn taskd(root: &HostRoot, path: &str, machine: Machine) -> Finding {
    const ADVICE: &str = "install the TaskD wheel, or correct `hostLibraries.libtaskd`";
    if root.stand(path).is_ok_and(|entry| entry.metadata().is_symlink()) {
        let message = format!("{path} is a link, which TaskD refuses; put the file there");
        return Finding::at(path, Reason::LinkNotAccepted, message);
    }
    look(root, path, machine, ADVICE).map_or_else(|finding| finding, |_| present(path))
}

fn present(path: &str) -> Finding {
    Finding::at(path, Reason::Present, format!("{path} is a shared object for this machine"))
}

fn look(root: &HostRoot, path: &str, machine: Machine, advice: &str) -> Result<Entry, Finding> {
    let entry = root.follow(path).map_err(|error| unseen(root, path, &error, Reason::FileMissing, advice))?;
    sound(path, &entry, machine, advice)?;
    Ok(entry)
}

fn sound(path: &str, entry: &Entry, machine: Machine, advice: &str) -> Result<(), Finding> {
    let Err(fault) = shared_object(entry, machine) else { return Ok(()) };
    let reason = match &fault {
        ElfFault::NotAFile(_) => Reason::NotAFile,
        ElfFault::Empty => Reason::FileEmpty,
        ElfFault::NotElf => Reason::NotElf,
        ElfFault::WrongClass => Reason::WrongClass,
        ElfFault::WrongMachine(_) => Reason::WrongMachine,
        ElfFault::NotASharedObject => Reason::NotASharedObject,
        ElfFault::Truncated => Reason::ElfTruncated,
        ElfFault::Look(_) => Reason::NotReadable,
    };
    let machine = if reason == Reason::WrongMachine {
        format!(" and not for {}", machine.name())
    } else {
        String::new()
    };
    Err(Finding::at(path, reason, format!("{path} can't be loaded: {fault}{machine}; {advice}")))
}

fn trusted(root: &HostRoot, path: &str, entry: &Entry, trust: Trust) -> Result<(), Finding> {
    match trust::breach(root, path, entry, trust) {
        Ok(None) => Ok(()),
        Ok(Some(breach)) => {
            let message = format!(
                "MindCluster's components pass {path} over because of {}: {}, or set `driver.trust: anyone` if none of them loads it",
                breach.path.display(),
                breach.problem
            );
            Err(Finding::at(path, Reason::NotTrusted, message))
        }
        Err(error) => Err(unseen(root, path, &error, Reason::FileMissing, "look again")),
    }
}
