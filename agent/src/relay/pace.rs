//! How fast ClusterD is spoken to.
//!
//! ClusterD takes one message a second from all senders of one resource together, with 100 in hand (`limiter.go`). An
//! agent that has something new tells it at once; after that it keeps its distance, and after a refusal more of it.

use std::time::Duration;

use swansong_clusterd::SendError;

/// Between two batches that were taken.
const GAP: Duration = Duration::from_secs(1);

/// The pause after a first failure, and the longest, for an agent that nobody answered.
const UNANSWERED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_mins(1));
/// The same for one that was answered 410, where asking again makes it worse for everybody.
const REFUSED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(2));

/// When the next batch may go.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    not_before: Duration,
    failures: u32,
    trouble: Option<Trouble>,
}

/// What keeps faults from ClusterD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Since when.
    pub(crate) since: Duration,
    /// What it was last.
    pub(crate) what: What,
    /// In words.
    pub(crate) message: String,
}

/// The kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// 410: not registered, too many, or a broken file.
    Refused,
    /// Nobody answers.
    Unanswered,
    /// An answer that isn't documented.
    Odd,
}

impl Pace {
    /// Whether a batch may go now, or when.
    pub(crate) const fn next(&self) -> Duration {
        self.not_before
    }

    /// What is wrong, and since when.
    pub(crate) const fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// A batch was taken, or judged: somebody is there.
    pub(crate) fn answered(&mut self, now: Duration) {
        self.failures = 0;
        self.trouble = None;
        self.not_before = now + GAP;
    }

    /// A batch wasn't taken. `chance` is between 0 and 1.
    pub(crate) fn failed(&mut self, error: &SendError, now: Duration, chance: f64) {
        let (what, (first, longest)) = match error {
            SendError::TooMany(_) => (What::Refused, REFUSED),
            SendError::Unavailable(_) | SendError::RetryAfter { .. } => (What::Unanswered, UNANSWERED),
            SendError::Invalid(_) | SendError::InvalidBatch(_) | SendError::UnexpectedResponse { .. } => {
                (What::Odd, REFUSED)
            }
        };
        let asked = if let SendError::RetryAfter { after, .. } = error { *after } else { Duration::ZERO };
        let pause = first.saturating_mul(1 << self.failures.min(16)).min(longest).max(asked.min(longest));
        self.failures = self.failures.saturating_add(1);
        // From half to all of it: a thousand agents must not come back as one.
        self.not_before = now + pause.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0).max(asked.min(longest));
        let since = self.trouble.as_ref().filter(|trouble| trouble.what == what).map_or(now, |t| t.since);
        self.trouble = Some(Trouble { since, what, message: error.to_string() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b89_answered_410_for_ever_it_asks_less_than_once_a_minute() {
        let mut pace = Pace::default();
        let (mut now, mut asked) = (Duration::ZERO, 0);
        while now < Duration::from_hours(1) {
            pace.failed(&SendError::TooMany("limiter".to_owned()), now, 0.0);
            asked += 1;
            assert!(pace.next() > now);
            now = pace.next();
        }
        assert!(asked < 70, "{asked} times in an hour");
        let trouble = pace.trouble().expect("there is");
        assert_eq!((trouble.what, trouble.since), (What::Refused, Duration::ZERO));
    }

    #[test]
    fn an_answer_ends_the_trouble_at_once() {
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.failed(&SendError::Unavailable("refused".to_owned()), Duration::ZERO, 1.0);
        }
        assert!(pace.next() <= UNANSWERED.1);
        pace.answered(Duration::from_secs(9));
        assert_eq!((pace.next(), pace.trouble()), (Duration::from_secs(10), None));
    }

    #[test]
    fn whoever_asks_for_time_gets_it_within_reason() {
        let mut pace = Pace::default();
        let later = |after| SendError::RetryAfter { reason: "full".to_owned(), after };
        pace.failed(&later(Duration::from_secs(20)), Duration::ZERO, 0.0);
        assert_eq!(pace.next(), Duration::from_secs(20));
        pace.failed(&later(Duration::from_hours(20)), Duration::ZERO, 0.0);
        assert!(pace.next() <= Duration::from_mins(1));
    }
}
