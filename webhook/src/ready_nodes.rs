//! Whether there is a node that is able to save a dying job, as last seen.
//!
//! The request path looks nothing up: a task beside the server looks from time to time, and only where the
//! configuration requires such nodes.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What the last look brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadyNodes {
    /// Nobody looked, or the look failed.
    #[default]
    Unknown,
    /// There is none that takes pods.
    None,
    /// There is at least one.
    Some,
}

/// The latest [`ReadyNodes`], written by one task and read by every request.
#[derive(Debug, Default)]
pub struct LastSeen(AtomicU8);

impl LastSeen {
    /// What was seen last.
    pub fn get(&self) -> ReadyNodes {
        match self.0.load(Relaxed) {
            1 => ReadyNodes::None,
            2 => ReadyNodes::Some,
            _ => ReadyNodes::Unknown,
        }
    }

    /// Replaces what was seen last, which is returned.
    pub fn set(&self, seen: ReadyNodes) -> ReadyNodes {
        let before = self.get();
        let number = match seen {
            ReadyNodes::Unknown => 0,
            ReadyNodes::None => 1,
            ReadyNodes::Some => 2,
        };
        self.0.store(number, Relaxed);
        before
    }
}
