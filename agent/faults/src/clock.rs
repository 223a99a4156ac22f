//! The clock of the pipeline, and the host's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Counts milliseconds from the host's time at its start. Later changes of the host's clock don't affect it, so its times
/// never go back within a process, and a restarted process can compare them with its own.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    offset: u64,
}

impl Clock {
    /// Starts with the host's time.
    pub fn start() -> Self {
        Self { started: Instant::now(), offset: unix_millis() }
    }

    /// Milliseconds since 1970, if the host's clock was right at the start.
    pub fn millis(&self) -> u64 {
        self.offset.saturating_add(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The same as a duration.
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.offset) + self.started.elapsed()
    }

    /// The instant at which [`now`](Self::now) is `at`, or one that is far away.
    pub fn instant(&self, at: Duration) -> Instant {
        const FAR: Duration = Duration::from_hours(24 * 365);
        let after = at.saturating_sub(Duration::from_millis(self.offset)).min(FAR);
        self.started.checked_add(after).unwrap_or_else(Instant::now)
    }
}

/// The host's time in milliseconds since 1970. It may jump.
pub fn unix_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in milliseconds.
pub(crate) fn as_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
