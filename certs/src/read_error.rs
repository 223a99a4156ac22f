//! Error messages for files that can't be read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{path} can't be read: {}", remedy(problem))]
pub struct ReadError {
    /// Path of the file.
    pub path: PathBuf,
    /// The system's error.
    pub problem: io::Error,
}

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, ReadError> {
    fs::read(path).map_err(|problem| ReadError { path: path.to_owned(), problem })
}

/// Describes the problem and what to do about it.
fn remedy(problem: &io::Error) -> String {
    match problem.kind() {
        io::ErrorKind::NotFound => "there is no such file; mount it, or correct the path".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied; let this user read it".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory; name the file in it".to_owned(),
        _ => problem.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_has_its_own_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let message = |path| remedy(&std::fs::read(path).expect_err("unreadable"));
        assert_eq!(message(directory.path()), "it is a directory; name the file in it");
        assert_eq!(
            message(&directory.path().join("none")),
            "there is no such file; mount it, or correct the path"
        );
        // Tests may run as root, who may read every file.
        let denied = io::ErrorKind::PermissionDenied.into();
        assert_eq!(remedy(&denied), "permission denied; let this user read it");
        assert_eq!(remedy(&io::Error::other("stale handle")), "stale handle");
    }
}
