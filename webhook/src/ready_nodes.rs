//! Whether there is a node that can save a dying job, as last observed.
//!
//! Reviews don't query the API server. A task polls it, and only if the configuration requires such nodes.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

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

/// The latest [`ReadyNodes`], written by one task and read by every review.
#[derive(Debug, Default)]
pub struct LastSeen(AtomicU8);

impl LastSeen {
    /// The latest value.
    pub fn get(&self) -> ReadyNodes {
        match self.0.load(Relaxed) {
            1 => ReadyNodes::None,
            2 => ReadyNodes::Some,
            _ => ReadyNodes::Unknown,
        }
    }

    /// Replaces the latest value and returns the previous one.
    pub fn set(&self, seen: ReadyNodes) -> ReadyNodes {
        let previous = self.get();
        let number = match seen {
            ReadyNodes::Unknown => 0,
            ReadyNodes::None => 1,
            ReadyNodes::Some => 2,
        };
        self.0.store(number, Relaxed);
        previous
    }
}
