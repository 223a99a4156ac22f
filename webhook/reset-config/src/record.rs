//! The controller's state of a job between two reconciles.

use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::{JobCount, JobState, Metrics};

/// Minimum time between two reconciles of one job, however often its ConfigMap changes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two Events with different messages about one job.
const EVENT_INTERVAL: Duration = Duration::from_mins(1);

/// Minimum time between two Events with the same message; API servers keep Events for an hour.
const EVENT_REPEAT_INTERVAL: Duration = Duration::from_mins(30);

/// State of one job, by its UID.
#[derive(Debug)]
pub(crate) struct Record {
    state: JobState,
    count: JobCount,
    reconciled_at: Option<Instant>,
    missing_since: Option<Instant>,
    /// Consecutive attempts without success.
    attempts: u32,
    last_event: Option<LastEvent>,
}

#[derive(Debug)]
struct LastEvent {
    message: String,
    at: Instant,
    count: i32,
}

impl Record {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let state = JobState::Pending;
        let count = metrics.count_job(state);
        Self { state, count, reconciled_at: None, missing_since: None, attempts: 0, last_event: None }
    }

    /// Starts a reconcile, or returns how long to wait before the next one.
    pub(crate) fn start(&mut self, now: Instant) -> Result<(), Duration> {
        let next = self.reconciled_at.map_or(now, |at| at + MIN_INTERVAL);
        if next > now {
            return Err(next - now);
        }
        self.reconciled_at = Some(now);
        Ok(())
    }

    /// Notes whether the ConfigMap is missing. Returns for how long it has been.
    pub(crate) fn observe_missing(&mut self, is_missing: bool, now: Instant) -> Duration {
        if is_missing {
            now - *self.missing_since.get_or_insert(now)
        } else {
            self.missing_since = None;
            Duration::ZERO
        }
    }

    /// Counts an attempt without success. Returns how many preceded it.
    pub(crate) fn count_attempt(&mut self) -> u32 {
        self.attempts = self.attempts.saturating_add(1);
        self.attempts - 1
    }

    pub(crate) fn reset_attempts(&mut self) {
        self.attempts = 0;
    }

    pub(crate) fn set_state(&mut self, state: JobState, metrics: &Metrics) {
        if self.state != state {
            self.state = state;
            self.count = metrics.count_job(state);
        }
    }

    /// Whether an Event with this message may be published now; if so, how many with this message preceded it.
    pub(crate) fn admit_event(&mut self, message: &str, now: Instant) -> Option<i32> {
        let count = match &self.last_event {
            None => 0,
            Some(last) if last.message == message => {
                (now - last.at >= EVENT_REPEAT_INTERVAL).then_some(last.count)?
            }
            Some(last) => (now - last.at >= EVENT_INTERVAL).then_some(0)?,
        };
        self.last_event =
            Some(LastEvent { message: message.to_owned(), at: now, count: count.saturating_add(1) });
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_event_every_half_hour_and_different_ones_every_minute() {
        let now = Instant::now();
        let mut record = Record::new(&Metrics::default());
        let mut published = Vec::new();
        for second in 0..7200 {
            // The message changes every second for a minute and a half.
            let message = format!("message {}", second.min(90));
            if let Some(count) = record.admit_event(&message, now + Duration::from_secs(second)) {
                published.push((second, count));
            }
        }
        assert_eq!(published, [(0, 0), (60, 0), (120, 0), (1920, 1), (3720, 2), (5520, 3)]);
    }

    #[test]
    fn reconciles_at_most_once_a_second() {
        let now = Instant::now();
        let mut record = Record::new(&Metrics::default());
        assert_eq!(record.start(now), Ok(()));
        let later = now + Duration::from_millis(300);
        assert_eq!(record.start(later), Err(Duration::from_millis(700)));
        assert_eq!(record.start(now + MIN_INTERVAL), Ok(()));
    }
}
