//! The shared libraries that a program needs, with those that they need.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::ImageError;
use super::elf::{self, Elf};
use super::oci::Architecture;

/// A library, and where in the image it goes.
pub(crate) struct Library {
    pub(crate) destination: String,
    pub(crate) contents: Vec<u8>,
}

/// Finds libraries for one kind of machine.
pub(crate) struct Libraries {
    architecture: Architecture,
    folders: Vec<PathBuf>,
}

struct Found {
    path: PathBuf,
    contents: Vec<u8>,
    elf: Elf,
    /// It came from a folder that the program itself names, where it also has to be in the image.
    by_run_path: bool,
}

impl Libraries {
    pub(crate) fn new(architecture: Architecture, first: &[PathBuf]) -> Self {
        let mut folders = first.to_owned();
        folders.extend(configured(Path::new("/etc/ld.so.conf")));
        folders.extend(architecture.library_folders().iter().map(PathBuf::from));
        folders.retain(|folder| folder.is_dir());
        Self { architecture, folders }
    }

    /// All libraries of a program, its loader first.
    ///
    /// Libraries go where the loader looks without a cache file: into the loader's built-in folder
    /// of that machine, wherever they were found on this one.
    pub(crate) fn of_program(&self, program: &Path, elf: &Elf) -> Result<Vec<Library>, ImageError> {
        let Some(loader) = &elf.loader else { return Ok(Vec::new()) };
        let mut libraries = vec![self.loader(program, loader)?];
        let loader_name = file_name(Path::new(loader));
        let mut seen = BTreeSet::from([loader_name]);
        let mut queue = VecDeque::new();
        let enqueue = |queue: &mut VecDeque<_>, path: &Path, elf: &Elf| {
            let run_path = run_path(path, elf);
            queue.extend(elf.needed.iter().map(|name| (name.clone(), path.to_owned(), run_path.clone())));
        };
        enqueue(&mut queue, program, elf);
        while let Some((name, needed_by, run_path)) = queue.pop_front() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let found =
                self.find(&name, &run_path).ok_or_else(|| self.not_found(&name, &needed_by, &run_path))?;
            enqueue(&mut queue, &found.path, &found.elf);
            let folder = match found.path.parent() {
                Some(folder) if found.by_run_path => folder.to_string_lossy().into_owned(),
                _ => self.architecture.library_folders()[0].to_owned(),
            };
            libraries.push(Library { destination: format!("{folder}/{name}"), contents: found.contents });
        }
        Ok(libraries)
    }

    /// The loader has to be exactly where the program says.
    fn loader(&self, program: &Path, loader: &str) -> Result<Library, ImageError> {
        let name = file_name(Path::new(loader));
        let at_home = self.read(Path::new(loader)).map(|(contents, _)| contents);
        let contents = at_home
            .or_else(|| self.find(&name, &[]).map(|found| found.contents))
            .ok_or_else(|| self.not_found(loader, program, &[]))?;
        Ok(Library { destination: loader.to_owned(), contents })
    }

    fn find(&self, name: &str, run_path: &[PathBuf]) -> Option<Found> {
        let folders = run_path
            .iter()
            .map(|folder| (folder, true))
            .chain(self.folders.iter().map(|folder| (folder, false)));
        for (folder, by_run_path) in folders {
            let path = folder.join(name);
            if let Some((contents, elf)) = self.read(&path) {
                return Some(Found { path, contents, elf, by_run_path });
            }
        }
        None
    }

    /// A file for another machine is passed over, as the loader itself does.
    fn read(&self, path: &Path) -> Option<(Vec<u8>, Elf)> {
        let contents = fs::read(path).ok()?;
        let elf = elf::parse(&contents).ok()?;
        (elf.architecture == self.architecture).then_some((contents, elf))
    }

    fn not_found(&self, library: &str, needed_by: &Path, run_path: &[PathBuf]) -> ImageError {
        let searched = run_path.iter().chain(&self.folders).map(|folder| folder.display().to_string());
        ImageError::Library {
            library: library.to_owned(),
            needed_by: needed_by.to_owned(),
            searched: searched.collect::<Vec<_>>().join(", "),
        }
    }
}

fn run_path(path: &Path, elf: &Elf) -> Vec<PathBuf> {
    let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let replaced = |entry: &String| entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    elf.run_path
        .iter()
        .filter(|entry| !entry.is_empty())
        .map(|entry| PathBuf::from(replaced(entry)))
        .collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The folders that the machine's own loader is configured with. `include` lines are followed one
/// level deep, as distributions use them.
fn configured(path: &Path) -> Vec<PathBuf> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let mut folders = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(pattern) = line.strip_prefix("include ") {
            let pattern = path.parent().unwrap_or(Path::new("/")).join(pattern.trim());
            let mut included: Vec<_> = fs::read_dir(pattern.parent().unwrap_or(Path::new("/")))
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .filter(|file| {
                    file.extension().is_some_and(|extension| extension == "conf") && *file != *path
                })
                .collect();
            included.sort();
            folders.extend(included.iter().flat_map(|file| configured(file)));
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
    folders
}
