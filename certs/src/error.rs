use std::fs;
use std::io;
use std::path::Path;

use kube::core::Status;
use swansong_runtime::kube::error_message;

/// Why a certificate can't be read, issued or stored, with the name of the file or object and what to do.
///
/// The text never quotes a key or the response of an API server that may contain one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The API server wasn't reached or returned an error.
    pub(crate) fn api(verb: &str, object: &str, error: &kube::Error) -> Self {
        Self(match error {
            // The error may quote the response.
            kube::Error::SerdeError(_) => format!(
                "can't {verb} {object}: the response isn't such an object; check for a proxy between this pod and the \
                 API server"
            ),
            error => format!("can't {verb} {object}: {}", error_message(error)),
        })
    }

    /// Every attempt of a round conflicted with another writer.
    pub(crate) fn conflict(object: &str, attempts: usize, response: &str) -> Self {
        Self(format!(
            "{object} changed during each of {attempts} attempts, or the API server rejects the change ({response}); \
             see the audit log for other writers"
        ))
    }
}

/// Whether another writer was first.
pub(crate) fn is_conflict(status: &Status) -> bool {
    status.is_conflict() || status.is_already_exists() || status.is_not_found()
}

pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => "there is no such file; mount it, or correct the path".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied; let this user read it".to_owned(),
            io::ErrorKind::IsADirectory => "it is a directory; name the file in it".to_owned(),
            _ => error.to_string(),
        };
        Error(format!("{} can't be read: {problem}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_file_says_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let message = |path: &Path| read_file(path).expect_err("unreadable").to_string();
        assert!(message(directory.path()).ends_with("it is a directory; name the file in it"));
        let missing = directory.path().join("none");
        assert_eq!(
            message(&missing),
            format!(
                "{} can't be read: there is no such file; mount it, or correct the path",
                missing.display()
            )
        );
    }
}
