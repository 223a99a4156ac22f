//! Limits messages to a share of what ClusterD accepts.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// All gateways together send this many messages at once and this share of one message a second: 80 % of ClusterD's
/// limits of 100 and one a second. The rest is left to agents that send directly.
const BURST: u32 = 80;
const PERIOD: Duration = Duration::from_millis(1250);

/// A token bucket.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    /// The time in which one message is added to the bucket.
    period: Duration,
    burst: u32,
    /// When the bucket is full again.
    full_at: Instant,
}

impl RateLimiter {
    /// A limiter with the share of one of `replicas` gateways. They share evenly and don't communicate.
    pub fn for_replicas(replicas: u32) -> Self {
        let replicas = replicas.max(1);
        Self { period: PERIOD * replicas, burst: (BURST / replicas).max(1), full_at: Instant::now() }
    }

    /// Waits until a message may be sent.
    pub async fn acquire(&mut self) {
        let rest = self.period * (self.burst - 1);
        sleep_until(self.full_at.checked_sub(rest).unwrap_or(self.full_at)).await;
        self.full_at = self.full_at.max(Instant::now()) + self.period;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn replicas_together_stay_below_clusterds_limits() {
        for replicas in [1, 2, 3, 5] {
            let mut limiter = RateLimiter::for_replicas(replicas);
            let start = Instant::now();
            let (mut at_once, mut later) = (0, 0);
            loop {
                limiter.acquire().await;
                match start.elapsed() {
                    Duration::ZERO => at_once += replicas,
                    elapsed if elapsed <= Duration::from_mins(10) => later += replicas,
                    _ => break,
                }
            }
            assert!(at_once > 0 && at_once <= 80, "{at_once} at once by {replicas}");
            assert!((400..=480).contains(&later), "{later} in 10 minutes by {replicas}");
        }
    }
}
