//! The files of an image below a root folder, such as `/proc/PID/root` of a container.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use swansong_image::{FileError, FileFacts, ImageFiles};

use super::root::{HostRoot, PathError};

/// More than libtaskd.so has; what is behind isn't searched.
const MAX_LIBRARY: u64 = 256 << 20;

impl ImageFiles for HostRoot {
    fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        let names = absent_as_none(path, Self::list(self, path))?.unwrap_or_default();
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    fn folders(&self, path: &str) -> Result<Vec<String>, FileError> {
        let mut names = ImageFiles::list(self, path)?;
        names.retain(|name| {
            let entry = self.resolve_nofollow(format!("{path}/{name}"));
            entry.is_ok_and(|entry| entry.metadata().is_dir())
        });
        Ok(names)
    }

    fn file(&self, path: &str) -> Result<Option<FileFacts>, FileError> {
        let Some(entry) = absent_as_none(path, self.resolve(path))? else { return Ok(None) };
        if !entry.metadata().is_file() {
            return Ok(None);
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let facts = entry
            .open()
            .and_then(|file| Ok(FileFacts::read(name, entry.metadata().mode(), file.take(MAX_LIBRARY))?));
        absent_as_none(path, facts)
    }

    fn is_link(&self, path: &str) -> Result<bool, FileError> {
        let entry = absent_as_none(path, self.resolve_nofollow(path))?;
        Ok(entry.is_some_and(|entry| entry.metadata().is_symlink()))
    }
}

/// `None` for what doesn't exist, also behind links in a loop, and for folders of other users such as `/root`.
fn absent_as_none<T>(path: &str, result: Result<T, PathError>) -> Result<Option<T>, FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(PathError::Missing | PathError::Loop | PathError::OtherKind(_)) => Ok(None),
        Err(PathError::PermissionDenied) if path.starts_with("/root") || path.starts_with("/home") => {
            Ok(None)
        }
        Err(error) => Err(FileError { path: path.to_owned(), problem: error.to_string() }),
    }
}
