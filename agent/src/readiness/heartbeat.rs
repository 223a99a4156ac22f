//! When the next heartbeat is due.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, SystemTime};

use super::Now;

/// The last observed heartbeat and the monotonic time at which the next one is due.
#[derive(Debug, Default)]
pub(super) struct Heartbeat(Option<(SystemTime, Duration)>);

impl Heartbeat {
    /// The monotonic time of the next heartbeat after `last`. It is in the second half of `interval`, at a point that
    /// differs by node and heartbeat and is the same after a restart.
    pub(super) fn due(&mut self, now: Now, node: &str, last: SystemTime, interval: Duration) -> Duration {
        match self.0 {
            Some((known, due)) if known == last => due,
            before => {
                let mut hasher = DefaultHasher::new();
                (node, last).hash(&mut hasher);
                let part = u32::try_from(hasher.finish() >> 32).unwrap_or(u32::MAX);
                let half = interval / 2;
                let wait = half + half.mul_f64(f64::from(part) / f64::from(u32::MAX));
                // Only the first observed heartbeat may be old. If the wall clock was set back, its age counts as zero.
                let age = match before {
                    None => now.wall.duration_since(last).unwrap_or_default(),
                    Some(_) => Duration::ZERO,
                };
                let due = now.elapsed + wait.saturating_sub(age);
                self.0 = Some((last, due));
                due
            }
        }
    }
}
