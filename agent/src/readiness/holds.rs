//! How long something has been seen without a break.

use std::collections::VecDeque;
use std::time::Duration;

use crate::report::Ready;

/// In how long a time failures are counted.
const WINDOW: Duration = Duration::from_hours(1);

/// As many failures within that are taken for separate mishaps; with each further one, recovery has to hold twice as
/// long.
const FREE: usize = 6;

/// The longest that recovery has to hold.
const MOST: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Holds {
    healthy: Option<Duration>,
    failing: Option<Duration>,
    unknown: Option<Duration>,
    relapses: VecDeque<Duration>,
}

impl Holds {
    /// Takes in what is seen at `now`; how long that has held.
    ///
    /// A look that can't tell breaks health and not failure: what alternates between the two is failing.
    pub(super) fn held(&mut self, now: Duration, seen: Ready) -> Duration {
        let since = match seen {
            Ready::True => {
                (self.failing, self.unknown) = (None, None);
                &mut self.healthy
            }
            Ready::False => {
                (self.healthy, self.unknown) = (None, None);
                &mut self.failing
            }
            Ready::Unknown => {
                self.healthy = None;
                &mut self.unknown
            }
        };
        now.saturating_sub(*since.get_or_insert(now))
    }

    /// A healthy node isn't any more.
    pub(super) fn relapsed(&mut self, now: Duration) {
        self.forget(now);
        self.relapses.push_back(now);
    }

    /// How long health has to hold to be believed.
    pub(super) fn recovery(&mut self, now: Duration, least: Duration) -> Duration {
        self.forget(now);
        let doublings = u32::try_from(self.relapses.len().saturating_sub(FREE)).unwrap_or(u32::MAX);
        least.saturating_mul(2_u32.saturating_pow(doublings)).min(MOST.max(least))
    }

    fn forget(&mut self, now: Duration) {
        while self.relapses.front().is_some_and(|&at| now.saturating_sub(at) > WINDOW) {
            self.relapses.pop_front();
        }
    }
}
