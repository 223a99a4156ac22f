//! How many messages may be sent: a part of what ClusterD takes.

use std::time::Duration;

use tokio::time::Instant;

/// ClusterD's own bucket holds so many messages.
const BURST: f64 = 100.0;
/// Of ClusterD's messages, the part that all relays take together; the rest is for agents that send themselves.
const SHARE: f64 = 0.8;

/// A token bucket.
#[derive(Debug, Clone)]
pub struct Budget {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Budget {
    /// The part of one of `replicas` relays: they share evenly and needn't know of each other. ClusterD takes 100 messages
    /// at once and then one a second.
    pub fn of_one_of(replicas: u32, now: Instant) -> Self {
        let part = SHARE / f64::from(replicas.max(1));
        let burst = (BURST * part).max(1.0);
        Self { per_second: part, burst, tokens: burst, at: now }
    }

    /// Takes a message's worth, or says how long there is none.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = self.burst.min(since.mul_add(self.per_second, self.tokens));
        self.at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            Ok(())
        } else {
            // A little more, so that rounding doesn't make it come back for nothing.
            let wait = (1.0 - self.tokens) / self.per_second;
            Err(Duration::from_secs_f64(wait) + Duration::from_millis(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever two relays do, ClusterD's bucket isn't empty for the agents that send themselves.
    #[test]
    fn replicas_together_stay_below_what_clusterd_takes() {
        for replicas in [1, 2, 3, 5] {
            let start = Instant::now();
            let mut budget = Budget::of_one_of(replicas, start);
            let at_once = (0..1000).filter(|_| budget.take(start).is_ok()).count();
            let mut later = 0;
            for millis in (0..600_000).step_by(100) {
                later += usize::from(budget.take(start + Duration::from_millis(millis)).is_ok());
            }
            let replicas = usize::try_from(replicas).expect("few");
            assert!(at_once > 0 && at_once * replicas <= 80, "{at_once} at once by each of {replicas}");
            assert!((400..=480).contains(&(later * replicas)), "{later} in 10 minutes by each of {replicas}");
        }
    }

    #[test]
    fn the_wait_that_is_told_is_enough() {
        let start = Instant::now();
        let mut budget = Budget::of_one_of(2, start);
        let wait = loop {
            if let Err(wait) = budget.take(start) {
                break wait;
            }
        };
        assert!(wait > Duration::from_secs(2), "{wait:?}");
        assert!(budget.take(start + wait).is_ok());
    }
}
