//! Container images without a registry and without a container engine.
//!
//! An image is made from programs and files: a program brings the shared libraries it needs, and
//! nothing else gets in. The result is one tar file that `ctr images import`, `docker load`,
//! `podman load` and `skopeo` read, and it depends on its contents only: the same files give the
//! same bytes, whenever and wherever.

mod elf;
mod libraries;
mod oci;
mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use elf::ElfError;
pub use oci::Architecture;

use self::libraries::Libraries;
use self::tree::Tree;

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// A program is no program that can go into an image.
    #[error("{}: {source}", .path.display())]
    Elf {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with it.
        source: ElfError,
    },
    /// A shared library was not found.
    #[error("{} needs {library}, which is in none of {searched}; install it or name its folder with --library-path", .needed_by.display())]
    Library {
        library: String,
        /// The file that needs it.
        needed_by: PathBuf,
        /// The folders that were searched.
        searched: String,
    },
    /// Two programs are for different machines.
    #[error("the image has programs for {0} and for {1}")]
    Architectures(Architecture, Architecture),
    /// A path in the image is not absolute, or climbs out of it.
    #[error("{0:?} is no path in an image: it has to be absolute and without `..`")]
    Path(String),
    /// Two different things were put at one path.
    #[error("{0} is already taken in the image")]
    Taken(String),
}

impl ImageError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The user that images run as by default: no user of any system has this number.
pub const DEFAULT_USER: &str = "65532:65532";

/// An image to be.
#[derive(Debug)]
pub struct ImageBuilder {
    name: String,
    tree: Tree,
    architecture: Option<Architecture>,
    library_paths: Vec<PathBuf>,
    libraries: Vec<String>,
    settings: oci::Settings,
}

impl ImageBuilder {
    /// An empty image under a full name such as `localhost/swansong:dev`.
    pub fn new(name: impl Into<String>) -> Self {
        let settings = oci::Settings { user: DEFAULT_USER.to_owned(), ..oci::Settings::default() };
        Self {
            name: name.into(),
            tree: Tree::default(),
            architecture: None,
            library_paths: Vec::new(),
            libraries: Vec::new(),
            settings,
        }
    }

    /// Searches this folder first for shared libraries; for programs of another machine's kind.
    #[must_use]
    pub fn library_path(mut self, folder: impl Into<PathBuf>) -> Self {
        self.library_paths.push(folder.into());
        self
    }

    /// Programs that are added from now on bring this library too, since something that they load needs it.
    #[must_use]
    pub fn library(mut self, name: impl Into<String>) -> Self {
        self.libraries.push(name.into());
        self
    }

    /// Adds a program with its loader and all shared libraries it needs.
    pub fn program(mut self, source: &Path, destination: &str) -> Result<Self, ImageError> {
        let wrong = |source_error| ImageError::Elf { path: source.to_owned(), source: source_error };
        let contents = fs::read(source).map_err(ImageError::io(source))?;
        let mut elf = elf::parse(&contents).map_err(wrong)?;
        elf.needed.extend(self.libraries.iter().cloned());
        self.set_architecture(elf.architecture)?;
        for library in Libraries::new(elf.architecture, &self.library_paths).of_program(source, &elf)? {
            self.tree.file(&library.destination, library.contents, 0o755)?;
        }
        self.tree.file(destination, contents, 0o755)?;
        Ok(self)
    }

    /// Adds a file as it is. A static program counts as one and sets the image's architecture.
    pub fn file(mut self, source: &Path, destination: &str, mode: u32) -> Result<Self, ImageError> {
        let contents = fs::read(source).map_err(ImageError::io(source))?;
        if let Ok(elf) = elf::parse(&contents) {
            self.set_architecture(elf.architecture)?;
        }
        self.tree.file(destination, contents, mode)?;
        Ok(self)
    }

    /// Adds a file with the given contents.
    pub fn contents(
        mut self,
        contents: impl Into<Vec<u8>>,
        destination: &str,
        mode: u32,
    ) -> Result<Self, ImageError> {
        self.tree.file(destination, contents.into(), mode)?;
        Ok(self)
    }

    /// Adds an empty folder.
    pub fn folder(mut self, destination: &str, mode: u32) -> Result<Self, ImageError> {
        self.tree.folder(destination, mode)?;
        Ok(self)
    }

    /// What runs in a container, with its first arguments.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.settings.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Arguments that a container may replace.
    #[must_use]
    pub fn arguments<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.settings.arguments = words.into_iter().map(Into::into).collect();
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.env.insert(name.into(), value.into());
        self
    }

    /// Adds a label to the image.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.labels.insert(name.into(), value.into());
        self
    }

    /// The user, as `UID:GID`.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.settings.user = user.into();
        self
    }

    /// Writes the image as a tar file and returns the digest of its manifest.
    pub fn write(&self, path: &Path) -> Result<String, ImageError> {
        let layer = self.tree.to_tar().map_err(ImageError::io(path))?;
        let architecture = self.architecture.unwrap_or(Architecture::HOST);
        let image = oci::Image::new(&self.name, architecture, &self.settings, layer);
        // Under another name first: a file that is there is whole.
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let file = fs::File::create(&unfinished).map_err(ImageError::io(&unfinished))?;
        image.write(file).map_err(ImageError::io(&unfinished))?;
        fs::rename(&unfinished, path).map_err(ImageError::io(path))?;
        Ok(image.digest().to_owned())
    }

    /// Paths in the image, folders left out.
    pub fn files(&self) -> Vec<&str> {
        self.tree.files()
    }

    fn set_architecture(&mut self, found: Architecture) -> Result<(), ImageError> {
        match self.architecture.replace(found) {
            Some(before) if before != found => Err(ImageError::Architectures(before, found)),
            _ => Ok(()),
        }
    }
}

/// Named values, in an order that is always the same.
type Pairs = BTreeMap<String, String>;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
