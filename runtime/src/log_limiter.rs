//! Limits log lines about events that may be frequent. Metrics count all of them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Admits a number of log lines in each period.
#[derive(Debug)]
pub struct LogLimiter {
    lines: u32,
    period: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    start: Option<Instant>,
    admitted: u32,
    suppressed: u64,
}

impl LogLimiter {
    /// Admits `lines` in each `period`.
    pub fn new(lines: u32, period: Duration) -> Self {
        Self { lines, period, state: Mutex::default() }
    }

    /// If a line may be written now, the number of lines suppressed since the last one.
    pub fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.start.is_none_or(|start| now.duration_since(start) >= self.period) {
            state.start = Some(now);
            state.admitted = 0;
        }
        if state.admitted < self.lines {
            state.admitted += 1;
            Some(std::mem::take(&mut state.suppressed))
        } else {
            state.suppressed += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_suppressed_lines_with_the_next_one() {
        let limiter = LogLimiter::new(20, Duration::from_secs(1));
        for line in 0..30 {
            assert_eq!(limiter.admit(), (line < 20).then_some(0), "{line}");
        }
        advance(Duration::from_millis(999)).await;
        assert_eq!(limiter.admit(), None);
        advance(Duration::from_millis(1)).await;
        assert_eq!(limiter.admit(), Some(11));
        assert_eq!(limiter.admit(), Some(0));
    }
}
