//! What can go wrong, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::prerequisites::Missing;

/// Why a cluster, or an answer from it, could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something has to be installed first.
    #[error("{}", crate::prerequisites::explain(.0))]
    Prerequisites(Vec<Missing>),

    /// One of the Kubernetes programs could not be built.
    #[error("{program} could not be built: {reason}")]
    Build {
        program: String,
        /// The end of what the compiler said.
        reason: String,
    },

    /// A program of the cluster ended by itself.
    #[error("{program} ended by itself ({status}); the end of {}:\n{tail}", .log.display())]
    Ended {
        program: String,
        /// Its exit status.
        status: String,
        /// Where all of its output is, as long as the cluster's folder is kept.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },

    /// A condition did not come true in time.
    #[error("{what}: not after {after:?}, last: {last}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        after: Duration,
        /// Why the last try said no.
        last: String,
    },

    /// A file or process operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        source: io::Error,
    },

    /// A command that was run for its effect failed.
    #[error("`{command}` failed: {output}")]
    Command {
        /// The command line.
        command: String,
        /// What it said.
        output: String,
    },

    /// The supervisor reported that it could not start the cluster.
    #[error("the cluster did not start: {0}")]
    Start(String),

    /// All of the networks that clusters on one machine may take are taken.
    #[error("all {0} networks for clusters on this machine are taken; end some `testcluster` first")]
    NoFreeNetwork(u8),

    /// The temporary directory's name is so long that sockets in it can't be named.
    #[error("{} is too long a name for a folder with sockets; set TMPDIR to a shorter one", .0.display())]
    PathTooLong(PathBuf),

    /// A certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Certificate(#[from] rcgen::Error),

    /// An image could not be made.
    #[error("the image could not be made: {0}")]
    Image(#[from] crate::image::ImageError),

    /// The API server refused or could not be reached.
    #[error("the API server: {0}")]
    Kube(#[source] Box<kube::Error>),

    /// A kubeconfig could not be used.
    #[error("kubeconfig {}: {source}", .path.display())]
    Kubeconfig {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },

    /// A document could not be read or written as JSON.
    #[error("{what}: {source}")]
    Json {
        /// The document that was parsed.
        what: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },

    /// Something was asked of a cluster without a node.
    #[error("{0} needs a cluster of tier node; this one is of tier api")]
    NeedsNode(&'static str),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(crate) fn file(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("{verb} {}", path.display()))
    }

    pub(crate) fn errno(what: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Self {
        let what = what.into();
        move |errno| Self::Io { what, source: errno.into() }
    }

    pub(crate) fn json(what: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Self {
        let what = what.into();
        move |source| Self::Json { what, source }
    }
}
