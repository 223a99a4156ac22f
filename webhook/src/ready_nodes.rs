//! Whether there is a node that can save a dying job.
//!
//! Reviews don't query the API server. A task polls it, and only if the configuration requires such nodes.

/// What the last poll found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadyNodes {
    /// There was no poll, or it failed.
    #[default]
    Unknown,
    /// No node is ready and schedulable.
    None,
    /// At least one node is ready and schedulable.
    Some,
}
