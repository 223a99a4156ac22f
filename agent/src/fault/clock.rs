//! A clock that never goes back, and the host's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Counts milliseconds from its start, whatever happens to the host's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since the start.
    pub fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The instant at which [`now`](Self::now) is `at`, or one that is far away.
    pub fn instant(&self, at: u64) -> Instant {
        const FAR: Duration = Duration::from_hours(24 * 365);
        self.0.checked_add(Duration::from_millis(at)).unwrap_or_else(|| Instant::now() + FAR)
    }
}

/// Now by the host's clock, in milliseconds since 1970; it may jump.
pub(crate) fn millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
