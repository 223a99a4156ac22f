//! Transports that deliver faults to ClusterD: its gRPC server, a ConfigMap that it reads, the gateway.

use std::time::Duration;

use crate::message::InvalidBatch;
use crate::public_fault::PublicFault;

/// Delivers batches of faults to ClusterD.
pub trait Transport: Send + Sync {
    /// Sends a batch of 1 to 100 faults, in order. `Ok` means that ClusterD accepted the message; the ConfigMap
    /// `statistic-fault-info` shows which faults it registered.
    fn send(&self, batch: &[PublicFault]) -> impl Future<Output = Result<(), SendError>> + Send;
}

/// Why a batch wasn't accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// ClusterD's 410: our resource isn't registered, too many messages were sent, or the customization file is invalid.
    /// ClusterD doesn't say which.
    #[error(
        "ClusterD answers 410, {0}: too many messages, or `swansong clusterd-config` was not installed, or its file can't be read"
    )]
    TooMany(String),
    /// ClusterD's 409: no fault of the batch is valid, or the request isn't.
    #[error("ClusterD refuses the batch, 409: {0}; its log has the reason")]
    Invalid(String),
    /// The batch was not sent, because ClusterD would refuse it or silently drop faults of it.
    #[error(transparent)]
    InvalidBatch(#[from] InvalidBatch),
    /// There was no response in time. ClusterD may or may not have accepted the batch.
    #[error("{0}")]
    Unavailable(String),
    /// The receiver asks for a retry after a delay.
    #[error("{reason}; retrying in {after:?}")]
    RetryAfter {
        /// Who asks for it and why.
        reason: String,
        after: Duration,
    },
    /// A response code that isn't documented.
    #[error("unexpected response {code}: {info}")]
    UnexpectedResponse { code: i32, info: String },
}
