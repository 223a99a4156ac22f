//! So many log lines a second: what happens to every review of a burst is counted whole and told in part.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines in a second. A disk full of them helps nobody.
const LINES: u32 = 20;

const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Quota(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    start: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl Quota {
    /// Whether a line may be written now: the number of those left out since the last one, or `None`.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.start.is_none_or(|start| now.duration_since(start) >= WINDOW) {
            state.start = Some(now);
            state.told = 0;
        }
        if state.told < LINES {
            state.told += 1;
            Some(std::mem::take(&mut state.left_out))
        } else {
            state.left_out += 1;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told_with_the_next_line() {
        let quota = Quota::default();
        let start = Instant::now();
        for line in 0..30 {
            assert_eq!(quota.admit(start), (line < LINES).then_some(0), "{line}");
        }
        assert_eq!(quota.admit(start + Duration::from_millis(999)), None);
        assert_eq!(quota.admit(start + WINDOW), Some(11));
        assert_eq!(quota.admit(start + WINDOW), Some(0));
    }
}
