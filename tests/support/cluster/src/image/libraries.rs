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
    pub(crate) fn of_program(&self, program: &Path, elf: &Elf) -> Result<Vec<Library>, ImageError> {
        let Some(loader) = &elf.loader else { return Ok(Vec::new()) };
        let mut libraries = vec![self.loader(program, loader)?];
        let found = self.closure(program, elf, &file_name(Path::new(loader)))?;
        let home = self.home(&found);
        libraries.extend(found.into_iter().map(|one| {
            let folder = one.path.parent().filter(|folder| one.by_run_path || self.is_built_in(folder));
            let folder = folder.unwrap_or(Path::new(&home)).display();
            Library { destination: format!("{folder}/{}", file_name(&one.path)), contents: one.contents }
        }));
        Ok(libraries)
    }

    fn closure(&self, program: &Path, elf: &Elf, loader: &str) -> Result<Vec<Found>, ImageError> {
        let mut all: Vec<Found> = Vec::new();
        let mut seen = BTreeSet::from([loader.to_owned()]);
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
            all.push(found);
        }
        Ok(all)
    }

    /// Where libraries go that were found in a folder the loader knows by configuration only, for
    /// there is none in an image: to the C library, since that is in a built-in folder.
    fn home(&self, found: &[Found]) -> String {
        let c_library = found.iter().find(|one| file_name(&one.path).starts_with("libc.so"));
        let folder = c_library.and_then(|one| one.path.parent()).filter(|folder| self.is_built_in(folder));
        folder.map_or_else(
            || self.architecture.library_folders()[0].to_owned(),
            |folder| folder.display().to_string(),
        )
    }

    fn is_built_in(&self, folder: &Path) -> bool {
        self.architecture.library_folders().iter().any(|built_in| folder == Path::new(built_in))
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
