//! What can go wrong at the API server, said so that the reader knows what to do.

use std::time::Duration;

use crate::authority::AuthorityError;
use crate::event::Source;

/// Why a round of [`Manager`](crate::Manager) failed. The last good pair stays in use, and the round is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// The API server refused or wasn't reached.
    #[error("can't {verb} {object}: {problem}")]
    Api {
        /// What it was about.
        source_of: Source,
        /// What was attempted.
        verb: &'static str,
        /// On what.
        object: String,
        /// What it said, and what to do.
        problem: String,
    },
    /// Someone else keeps the Secret.
    #[error(
        "{object} belongs to cert-manager, so it is not touched; mount it and give its files to the webhook, or name another Secret"
    )]
    Foreign {
        /// The Secret.
        object: String,
    },
    /// The webhook configuration isn't there.
    #[error(
        "{object} doesn't exist, so the API server calls no webhook; apply the manifests, or correct the name"
    )]
    NoConfiguration {
        /// The configuration.
        object: String,
    },
    /// Every attempt met with another writer.
    #[error(
        "{object} changed under every one of {attempts} attempts, or is refused as such ({answer}); see the audit log for who else writes it"
    )]
    Contended {
        /// What it was about.
        source_of: Source,
        /// The object.
        object: String,
        /// How often it was tried.
        attempts: usize,
        /// The API server's last answer.
        answer: String,
    },
    /// What this replica stores doesn't stay.
    #[error(
        "{object} was renewed {times} times by this replica within {} s and is to be renewed again ({reason}); see the audit log for who else writes it, and compare the clocks and the --service names of whoever does", within.as_secs()
    )]
    Undone {
        /// The Secret.
        object: String,
        /// How often.
        times: usize,
        /// In what time.
        within: Duration,
        /// Why it would be renewed again.
        reason: String,
    },
    /// A certificate can't be made.
    #[error(transparent)]
    Making(#[from] AuthorityError),
    /// The API server took too long.
    #[error("the API server didn't answer within {} s; see whether it can be reached from this pod", after.as_secs_f64())]
    TimedOut {
        /// What it was about.
        source_of: Source,
        /// How long was waited.
        after: Duration,
    },
}

impl ManageError {
    /// What the failed part was about.
    pub const fn source_of(&self) -> Source {
        match self {
            Self::Api { source_of, .. }
            | Self::Contended { source_of, .. }
            | Self::TimedOut { source_of, .. } => *source_of,
            Self::NoConfiguration { .. } => Source::CaBundle,
            Self::Foreign { .. } | Self::Undone { .. } | Self::Making(_) => Source::Secret,
        }
    }
}

/// What was attempted on what, for errors.
pub(crate) struct Attempt<'a> {
    pub(crate) source_of: Source,
    pub(crate) verb: &'static str,
    pub(crate) object: &'a str,
}

impl Attempt<'_> {
    pub(crate) fn failed(&self, error: &kube::Error) -> ManageError {
        let problem = match error {
            kube::Error::Api(status) if status.is_forbidden() => {
                format!("{} (let the webhook's ServiceAccount {} it: RBAC)", status.message, self.verb)
            }
            kube::Error::Api(status) => {
                format!("{} ({} {})", status.message, status.code, status.reason)
            }
            other => format!("{other} (tried again soon)"),
        };
        self.because(problem)
    }

    /// The answer is not what was asked for; what it is isn't said, since it may hold keys.
    pub(crate) fn not_understood(&self) -> ManageError {
        self.because(
            "the answer is not such an object; see what stands between this pod and the API server"
                .to_owned(),
        )
    }

    fn because(&self, problem: String) -> ManageError {
        ManageError::Api {
            source_of: self.source_of,
            verb: self.verb,
            object: self.object.to_owned(),
            problem,
        }
    }
}
