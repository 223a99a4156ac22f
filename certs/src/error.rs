//! Errors of the [`Manager`](crate::Manager), with what to do about them.

use std::time::Duration;

use swansong_runtime::kube::error_message;

use crate::ca::CaError;
use crate::event::Source;

/// Why a round of the [`Manager`](crate::Manager) failed. The last valid pair stays in use, and the round is retried.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The API server returned an error or wasn't reached.
    #[error("can't {verb} {object}: {problem}")]
    Api {
        /// The object's kind.
        source_of: Source,
        /// The verb of the request.
        verb: &'static str,
        object: String,
        /// The response, and what to do.
        problem: String,
    },
    /// cert-manager manages the Secret.
    #[error(
        "{object} belongs to cert-manager, so it is not changed; mount it and give its files to the webhook, or name another Secret"
    )]
    Foreign {
        /// Name of the Secret.
        object: String,
    },
    /// The webhook configuration doesn't exist.
    #[error(
        "{object} doesn't exist, so the API server calls no webhook; apply the manifests, or correct the name"
    )]
    NoConfiguration { object: String },
    /// Every attempt conflicted with another writer.
    #[error(
        "{object} changed during each of {attempts} attempts, or the API server rejects the change ({response}); see the audit log for other writers"
    )]
    Conflict {
        /// The object's kind.
        source_of: Source,
        object: String,
        /// The number of attempts.
        attempts: usize,
        /// The last response of the API server.
        response: String,
    },
    /// Another writer reverts what this replica stores.
    #[error(
        "this replica renewed {object} {renewals} times within {} s and it is due again ({reason}); see the audit log for other writers, and compare their clocks and --service names", window.as_secs()
    )]
    RenewedTooOften {
        /// Name of the Secret.
        object: String,
        /// The number of renewals.
        renewals: usize,
        /// The time in which they happened.
        window: Duration,
        /// Why it is due again.
        reason: String,
    },
    /// A certificate can't be issued.
    #[error(transparent)]
    Issue(#[from] CaError),
    /// The API server didn't respond in time.
    #[error("the API server didn't respond within {} s; check whether this pod can reach it", after.as_secs_f64())]
    Timeout {
        /// The object's kind.
        source_of: Source,
        after: Duration,
    },
}

impl ManagerError {
    pub(crate) fn api(source_of: Source, verb: &'static str, object: &str, error: &kube::Error) -> Self {
        Self::Api { source_of, verb, object: object.to_owned(), problem: error_message(error) }
    }

    /// The response isn't an object of the expected kind. It isn't quoted, since it may contain keys.
    pub(crate) fn unexpected_response(source_of: Source, verb: &'static str, object: &str) -> Self {
        let problem =
            "the response isn't such an object; check for a proxy between this pod and the API server";
        Self::Api { source_of, verb, object: object.to_owned(), problem: problem.to_owned() }
    }

    /// Returns the kind of object that the failed part of the round is about.
    pub const fn source_of(&self) -> Source {
        match self {
            Self::Api { source_of, .. }
            | Self::Conflict { source_of, .. }
            | Self::Timeout { source_of, .. } => *source_of,
            Self::NoConfiguration { .. } => Source::CaBundle,
            Self::Foreign { .. } | Self::RenewedTooOften { .. } | Self::Issue(_) => Source::Secret,
        }
    }
}
