//! The delay between attempts.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use kube::runtime::utils::Backoff as KubeBackoff;
use tokio::time::Instant;

/// Between restarts of a [supervised](crate::supervisor) task.
pub const RESTART: Limits = Limits { first: Duration::from_secs(1), max: Duration::from_mins(1) };

/// Between requests to the API server.
pub const API_SERVER: Limits = Limits { first: Duration::from_millis(500), max: Duration::from_mins(1) };

/// The first and the longest delay of a [`Backoff`], before jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Delay after the first failure.
    pub first: Duration,
    /// Delay that is never exceeded, except by jitter.
    pub max: Duration,
}

impl Limits {
    fn delays(self) -> ExponentialBackoff {
        let builder = ExponentialBuilder::new().with_min_delay(self.first).with_max_delay(self.max);
        builder.without_max_times().with_jitter().build()
    }
}

/// An endless exponential backoff with full jitter: each delay is between one and two times its nominal value, so that
/// the agents of a cluster don't retry in step.
#[derive(Debug)]
pub struct Backoff {
    limits: Limits,
    delays: ExponentialBackoff,
}

impl Backoff {
    /// A backoff whose next delay is the first one.
    pub fn new(limits: Limits) -> Self {
        Self { limits, delays: limits.delays() }
    }

    /// Starts again with the first delay, after a success.
    pub fn reset(&mut self) {
        self.delays = self.limits.delays();
    }

    /// The next delay, no shorter than the server's `Retry-After`.
    pub fn next_delay(&mut self, retry_after: Option<Duration>) -> Duration {
        let delay = self.delays.next().unwrap_or(self.limits.max);
        // The same Retry-After may have been sent to many clients.
        let jitter = self.limits.first.mul_f64(fastrand::f64());
        retry_after.map_or(delay, |after| delay.max(after + jitter))
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.next_delay(None))
    }
}

/// A backoff of `kube::runtime`'s watchers, as `watcher(…).backoff(WatchBackoff::new(API_SERVER))`.
///
/// A watcher yields an item at the start of each list, before the list fails. kube's own `default_backoff` takes that for a
/// success and repeats a failing list every second. This one starts again with the first delay only after
/// [`WatchBackoff::RESET_AFTER`] without an error.
#[derive(Debug)]
pub struct WatchBackoff {
    backoff: Backoff,
    /// When the delay that was returned last ends.
    retried_at: Option<Instant>,
}

impl WatchBackoff {
    /// Time without an error, after a retry, until the delay starts again at the first one.
    pub const RESET_AFTER: Duration = Duration::from_mins(2);

    /// A backoff whose next delay is the first one.
    pub fn new(limits: Limits) -> Self {
        Self { backoff: Backoff::new(limits), retried_at: None }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.retried_at.is_some_and(|at| at.elapsed() > Self::RESET_AFTER) {
            self.backoff.reset();
        }
        let delay = self.backoff.next_delay(None);
        self.retried_at = Some(Instant::now() + delay);
        Some(delay)
    }
}

impl KubeBackoff for WatchBackoff {
    /// Does nothing: an item is no proof of success.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_limit_and_starts_again_after_reset() {
        let mut backoff = Backoff::new(Limits { first: Duration::from_secs(1), max: Duration::from_secs(6) });
        for _ in 0..2 {
            for nominal in [1, 2, 4, 6, 6].map(Duration::from_secs) {
                let delay = backoff.next_delay(None);
                assert!(delay >= nominal && delay <= nominal * 2, "{delay:?} for {nominal:?}");
            }
            backoff.reset();
        }
    }

    #[test]
    fn waits_at_least_as_long_as_the_server_asks() {
        let mut backoff = Backoff::new(RESTART);
        let after = Duration::from_secs(30);
        let delay = backoff.next_delay(Some(after));
        assert!(delay >= after && delay < after + RESTART.first, "{delay:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn watch_backoff_is_reset_by_time_only() {
        let mut backoff =
            WatchBackoff::new(Limits { first: Duration::from_secs(1), max: Duration::from_secs(30) });
        let mut next = || {
            KubeBackoff::reset(&mut backoff);
            backoff.next().expect("endless")
        };
        for nominal in [1, 2, 4, 8].map(Duration::from_secs) {
            let delay = next();
            assert!(delay >= nominal && delay <= nominal * 2, "{delay:?} for {nominal:?}");
        }
        tokio::time::sleep(WatchBackoff::RESET_AFTER + Duration::from_secs(17)).await;
        assert!(next() <= Duration::from_secs(2));
    }
}
