//! How fast batches are sent.
//!
//! ClusterD accepts one message a second from all senders of a resource together, with a burst of 100 (`limiter.go`).

use std::time::Duration;

/// Between two batches that ClusterD answered.
const GAP: Duration = Duration::from_secs(1);

/// The first and the longest pause after a batch without an answer.
const UNAVAILABLE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_mins(1));
/// The same after an answer 410, where each retry costs all senders a message.
const LIMITED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(2));

/// Why a batch wasn't accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchError {
    /// 410: the resource isn't registered, too many messages, or ClusterD's file can't be read.
    Limited(String),
    /// 409: none of the faults is valid.
    Invalid(String),
    /// No answer, or one that asks for time.
    Unavailable {
        why: String,
        /// The delay that the receiver requests.
        retry_after: Option<Duration>,
    },
    /// An answer that isn't documented.
    Unexpected(String),
}

/// What keeps batches from ClusterD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub since: Duration,
    /// The last error.
    pub error: BatchError,
}

/// When the next batch may be sent.
#[derive(Debug, Default)]
pub struct SendBackoff {
    not_before: Duration,
    failures: u32,
    trouble: Option<Trouble>,
}

impl BatchError {
    pub fn message(&self) -> &str {
        match self {
            Self::Limited(why)
            | Self::Invalid(why)
            | Self::Unexpected(why)
            | Self::Unavailable { why, .. } => why,
        }
    }
}

impl SendBackoff {
    /// The first batch may be sent at once.
    pub const fn new() -> Self {
        Self { not_before: Duration::ZERO, failures: 0, trouble: None }
    }

    /// The earliest time of the next batch.
    pub const fn next(&self) -> Duration {
        self.not_before
    }

    /// What is wrong, and since when.
    pub const fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// ClusterD accepted or refused a batch: it is there.
    pub fn answered(&mut self, now: Duration) {
        self.failures = 0;
        self.trouble = None;
        self.not_before = now + GAP;
    }

    /// A batch failed. `jitter` is between 0 and 1: the agents of a cluster must not retry together.
    pub fn failed(&mut self, error: &BatchError, now: Duration, jitter: f64) {
        let (first, longest) = match error {
            BatchError::Unavailable { .. } => UNAVAILABLE,
            BatchError::Limited(_) | BatchError::Invalid(_) | BatchError::Unexpected(_) => LIMITED,
        };
        let asked = match error {
            BatchError::Unavailable { retry_after: Some(after), .. } => (*after).min(longest),
            _ => Duration::ZERO,
        };
        let pause = first.saturating_mul(1 << self.failures.min(16)).min(longest).max(asked);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0).max(asked);
        let same =
            |trouble: &&Trouble| std::mem::discriminant(&trouble.error) == std::mem::discriminant(error);
        let since = self.trouble.as_ref().filter(same).map_or(now, |trouble| trouble.since);
        self.trouble = Some(Trouble { since, error: error.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable(retry_after: Option<Duration>) -> BatchError {
        BatchError::Unavailable { why: "refused".to_owned(), retry_after }
    }

    #[test]
    fn retries_less_than_once_a_minute_while_answered_410() {
        let mut backoff = SendBackoff::default();
        let (mut now, mut sent) = (Duration::ZERO, 0);
        while now < Duration::from_hours(1) {
            backoff.failed(&BatchError::Limited("limiter".to_owned()), now, 0.0);
            sent += 1;
            assert!(backoff.next() > now);
            now = backoff.next();
        }
        assert!(sent < 70, "{sent} times in an hour");
        assert_eq!(backoff.trouble().expect("trouble").since, Duration::ZERO);
    }

    #[test]
    fn an_answer_resets_the_backoff() {
        let mut backoff = SendBackoff::default();
        for _ in 0..20 {
            backoff.failed(&unavailable(None), Duration::ZERO, 1.0);
        }
        assert!(backoff.next() <= UNAVAILABLE.1);
        backoff.answered(Duration::from_secs(9));
        assert_eq!((backoff.next(), backoff.trouble()), (Duration::from_secs(10), None));
    }

    #[test]
    fn honours_retry_after_up_to_a_limit() {
        let mut backoff = SendBackoff::default();
        backoff.failed(&unavailable(Some(Duration::from_secs(20))), Duration::ZERO, 0.0);
        assert_eq!(backoff.next(), Duration::from_secs(20));
        backoff.failed(&unavailable(Some(Duration::from_hours(20))), Duration::ZERO, 0.0);
        assert!(backoff.next() <= Duration::from_mins(1));
    }
}
