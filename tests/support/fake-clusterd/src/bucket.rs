//! The token bucket of `golang.org/x/time/rate`.

/// A token bucket with a steady rate and a burst. Times are in milliseconds.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: u64,
    /// In thousandths of a token.
    burst: u64,
    tokens: u64,
    at: u64,
}

impl Bucket {
    /// A bucket that is full at `now`.
    pub const fn new(per_second: u64, burst: u64, now: u64) -> Self {
        Self { per_second, burst: burst * 1000, tokens: burst * 1000, at: now }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: u64) -> bool {
        let since = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.tokens = self.burst.min(self.tokens.saturating_add(since.saturating_mul(self.per_second)));
        let enough = self.tokens >= 1000;
        if enough {
            self.tokens -= 1000;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_at_once_then_one_a_second() {
        let mut bucket = Bucket::new(1, 100, 0);
        assert_eq!((0..130).filter(|_| bucket.take(0)).count(), 100);
        assert!(!bucket.take(999));
        assert!(bucket.take(1000));
        assert!(!bucket.take(1500));
        assert_eq!((0..130).filter(|_| bucket.take(1_000_000)).count(), 100, "never more than the burst");
    }
}
