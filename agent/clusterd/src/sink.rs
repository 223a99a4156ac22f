//! Whoever takes faults: ClusterD itself, a ConfigMap that it reads, the relay of the cluster.

use std::time::Duration;

use crate::message::NotSendable;
use crate::public_fault::PublicFault;

/// Takes batches of faults.
pub trait Sink: Send + Sync {
    /// Hands a batch over, in order: at most 100, all of them proven. `Ok` says that it was taken; whether ClusterD
    /// made something of it is seen elsewhere.
    fn send(&self, batch: &[PublicFault]) -> impl Future<Output = Result<(), SendError>> + Send;
}

/// A batch wasn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// ClusterD's 410: our resource isn't registered, or too much was sent, or the administrator's file is broken; it
    /// doesn't say which.
    #[error(
        "ClusterD answers 410, {0}: too many messages, or `swansong clusterd-config` was not installed, or its file can't be read"
    )]
    TooMany(String),
    /// ClusterD's 409: not one fault of the batch is valid, or the request as such isn't.
    #[error("ClusterD refuses the batch, 409: {0}; its log has the reason")]
    Invalid(String),
    /// The batch was not sent, since ClusterD would refuse it, or drop faults of it without saying so.
    #[error(transparent)]
    NotSendable(#[from] NotSendable),
    /// Nobody answered, or not in time; whether the batch was taken can't be told.
    #[error("{0}")]
    Unavailable(String),
    /// Come back later.
    #[error("{why}; to be tried again in {after:?}")]
    Later {
        /// Who says so and why.
        why: String,
        /// When.
        after: Duration,
    },
    /// An answer that isn't documented.
    #[error("an answer that isn't documented, {code}: {info}")]
    Other {
        /// The code.
        code: i32,
        /// The text.
        info: String,
    },
}
