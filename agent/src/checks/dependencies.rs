//! Whether the loader finds the libraries that a library of the driver needs.

use std::collections::BTreeSet;
use std::path::Path;

use crate::host::{ElfError, Entry, HostRoot, Machine, PathError, dependencies, shared_object};

/// Configuration files of the loader have a few kilobytes.
const MAX_SIZE: u64 = 1 << 20;

/// The loader's own folders (ld.so(8)), and those of Debian.
const DEFAULT_FOLDERS: [&str; 8] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
];

/// Prefixes of libraries that come with the C library and the compiler. MindCluster's components load the driver's
/// libraries in their containers, whose images contain these.
const RUNTIME: [&str; 8] = [
    "ld-linux",
    "libc.so",
    "libdl.so",
    "libgcc_s.so",
    "libm.so",
    "libpthread.so",
    "librt.so",
    "libstdc++.so",
];

/// A library that the loader doesn't find.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingLibrary {
    pub(super) name: String,
    /// The path of the library that needs it.
    pub(super) needed_by: String,
}

/// Follows `DT_NEEDED` from `library` through the driver's `folders` and the host's loader paths.
pub(super) fn missing(
    root: &HostRoot,
    library: &Entry,
    folders: &[&str],
    machine: Machine,
) -> Option<MissingLibrary> {
    let configured = loader_folders(root);
    let search: Vec<&str> = folders.iter().copied().chain(configured.iter().map(String::as_str)).collect();
    let mut seen = BTreeSet::new();
    let mut queue: Vec<Entry> = Vec::new();
    let mut next = Some(library);
    let mut current;
    while let Some(entry) = next {
        let needed = dependencies(entry).unwrap_or_default();
        let origin = entry.resolved().parent().unwrap_or(Path::new("/")).display().to_string();
        let own: Vec<String> = needed
            .folders
            .iter()
            .map(|folder| folder.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", &origin))
            .collect();
        for name in needed.libraries {
            if RUNTIME.iter().any(|prefix| name.starts_with(prefix)) || !seen.insert(name.clone()) {
                continue;
            }
            let folders = own.iter().map(String::as_str).chain(search.iter().copied());
            match find(root, &name, folders, machine) {
                Ok(found) => queue.push(found),
                Err(NotFound::Unreadable) => {}
                Err(NotFound::Missing) => {
                    return Some(MissingLibrary { name, needed_by: entry.resolved().display().to_string() });
                }
            }
        }
        current = queue.pop();
        next = current.as_ref();
    }
    None
}

/// Why a library isn't found.
enum NotFound {
    Missing,
    /// A file of this name can't be read, so the library may exist.
    Unreadable,
}

fn find<'a>(
    root: &HostRoot,
    name: &str,
    folders: impl Iterator<Item = &'a str>,
    machine: Machine,
) -> Result<Entry, NotFound> {
    // The loader doesn't search a name with a slash.
    let paths: Vec<String> = if name.contains('/') {
        vec![name.to_owned()]
    } else {
        folders.map(|folder| format!("{folder}/{name}")).collect()
    };
    let mut not_found = NotFound::Missing;
    for path in paths {
        match root.resolve(path) {
            Ok(entry) => match shared_object(&entry, machine) {
                Ok(()) => return Ok(entry),
                Err(ElfError::Path(_)) => not_found = NotFound::Unreadable,
                // The loader skips files of other architectures.
                Err(_) => {}
            },
            Err(PathError::Missing | PathError::Loop) => {}
            Err(_) => not_found = NotFound::Unreadable,
        }
    }
    Err(not_found)
}

/// The folders in `/etc/ld.so.conf` and `/etc/ld.so.conf.d/*.conf`, then the loader's own.
fn loader_folders(root: &HostRoot) -> Vec<String> {
    const INCLUDED: &str = "/etc/ld.so.conf.d";
    let names = root.list(INCLUDED).unwrap_or_default();
    let included =
        names.iter().filter_map(|name| name.to_str()).filter(|name| name.strip_suffix(".conf").is_some());
    let files = included.map(|name| format!("{INCLUDED}/{name}"));
    let mut folders = Vec::new();
    for file in std::iter::once("/etc/ld.so.conf".to_owned()).chain(files) {
        let content = root.read(file, MAX_SIZE).unwrap_or_default();
        let content = String::from_utf8_lossy(&content);
        folders
            .extend(content.lines().map(str::trim).filter(|line| line.starts_with('/')).map(str::to_owned));
    }
    folders.extend(DEFAULT_FOLDERS.map(str::to_owned));
    folders
}
