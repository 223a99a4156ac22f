//! Debounces verdicts.
//!
//! A scan may hit a program before its loader has finished, and a restarting job passes through every state. So a bad
//! verdict is reported only after it has held for the grace period, and a good one at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Decides which verdicts are reported.
#[derive(Debug)]
pub struct Debouncer<K, V> {
    grace: Duration,
    subjects: HashMap<K, State<V>>,
}

#[derive(Debug)]
struct State<V> {
    observed: V,
    since: Duration,
    reported: Option<V>,
}

impl<K: Hash + Eq, V: Clone + PartialEq> Debouncer<K, V> {
    /// A debouncer without reported verdicts.
    pub fn new(grace: Duration) -> Self {
        Self { grace, subjects: HashMap::new() }
    }

    /// Records a verdict at `now`, on a monotonic clock. Returns whether it has to be reported.
    pub fn record(&mut self, subject: K, observed: V, is_good: bool, now: Duration) -> bool {
        let initial = State { observed: observed.clone(), since: now, reported: None };
        let state = self.subjects.entry(subject).or_insert(initial);
        if state.observed != observed {
            state.observed = observed.clone();
            state.since = now;
        }
        let is_settled = is_good || now.saturating_sub(state.since) >= self.grace;
        let is_new = is_settled && state.reported.as_ref() != Some(&observed);
        if is_new {
            state.reported = Some(observed);
        }
        is_new
    }

    /// Removes the subjects that no longer exist.
    pub fn retain(&mut self, exists: impl Fn(&K) -> bool) {
        self.subjects.retain(|subject, _| exists(subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_verdicts_wait_and_good_ones_do_not() {
        let mut debouncer = Debouncer::new(Duration::from_secs(30));
        for (at, verdict, reported) in [
            (0, "bad", false),
            (10, "live", true),
            (20, "live", false),
            (30, "bad", false),
            (59, "bad", false),
            (60, "bad", true),
            (90, "bad", false),
            (100, "other", false),
            (110, "bad", false),
            (145, "bad", false),
            (150, "live", true),
        ] {
            let now = Duration::from_secs(at);
            assert_eq!(debouncer.record("c", verdict, verdict == "live", now), reported, "at {at}");
        }
        debouncer.retain(|_| false);
        assert!(debouncer.record("c", "live", true, Duration::from_secs(160)), "it is another one");
    }
}
