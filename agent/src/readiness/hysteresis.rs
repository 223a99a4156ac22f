//! How long a status has been observed without interruption.

use std::collections::VecDeque;
use std::time::Duration;

use crate::finding::Ready;

/// The time in which failures are counted.
const WINDOW: Duration = Duration::from_hours(1);

/// The number of failures in [`WINDOW`] that don't delay recovery. Each further one doubles the delay.
const FREE: usize = 6;

/// The longest delay of recovery.
const MAX_RECOVERY: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Hysteresis {
    healthy_since: Option<Duration>,
    failing_since: Option<Duration>,
    unknown_since: Option<Duration>,
    failures: VecDeque<Duration>,
}

impl Hysteresis {
    /// Records the status at `now`, and returns how long it has held.
    ///
    /// An unknown status interrupts health but not failure, so alternating failure and unknown is failure.
    pub(super) fn record(&mut self, now: Duration, status: Ready) -> Duration {
        let since = match status {
            Ready::True => {
                (self.failing_since, self.unknown_since) = (None, None);
                &mut self.healthy_since
            }
            Ready::False => {
                (self.healthy_since, self.unknown_since) = (None, None);
                &mut self.failing_since
            }
            Ready::Unknown => {
                self.healthy_since = None;
                &mut self.unknown_since
            }
        };
        now.saturating_sub(*since.get_or_insert(now))
    }

    /// Counts the end of a healthy period.
    pub(super) fn count_failure(&mut self, now: Duration) {
        self.expire(now);
        self.failures.push_back(now);
    }

    /// How long health has to hold; at least `min`.
    pub(super) fn recovery_delay(&mut self, now: Duration, min: Duration) -> Duration {
        self.expire(now);
        let doublings = u32::try_from(self.failures.len().saturating_sub(FREE)).unwrap_or(u32::MAX);
        min.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_RECOVERY.max(min))
    }

    fn expire(&mut self, now: Duration) {
        while self.failures.front().is_some_and(|&at| now.saturating_sub(at) > WINDOW) {
            self.failures.pop_front();
        }
    }
}
