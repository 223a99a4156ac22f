//! Debounces verdicts.
//!
//! A scan may hit a program before its loader has finished, and a restarting job passes through every state. So a bad
//! verdict is reported only after it has held for the grace period, and a good one at once.

use std::collections::HashMap;
use std::time::Duration;

use super::reason::PreloadReason;
use super::verdict::{Outcome, Verdict};

/// Decides which verdicts are reported.
#[derive(Debug)]
pub struct Debouncer<K> {
    grace: Duration,
    containers: HashMap<K, State>,
}

#[derive(Debug)]
struct State {
    observed: (Outcome, PreloadReason),
    since: Duration,
    reported: Option<(Outcome, PreloadReason)>,
}

impl<K: std::hash::Hash + Eq> Debouncer<K> {
    /// A debouncer without reported verdicts.
    pub fn new(grace: Duration) -> Self {
        Self { grace, containers: HashMap::new() }
    }

    /// Records a verdict at `now`, on a monotonic clock. Returns whether it has to be reported.
    pub fn record(&mut self, container: K, verdict: &Verdict, now: Duration) -> bool {
        let observed = (verdict.outcome, verdict.reason);
        let state =
            self.containers.entry(container).or_insert(State { observed, since: now, reported: None });
        if state.observed != observed {
            state.observed = observed;
            state.since = now;
        }
        let settled = match verdict.outcome {
            Outcome::Live => true,
            Outcome::PartlyLive | Outcome::NotLive | Outcome::Unknown => {
                now.saturating_sub(state.since) >= self.grace
            }
        };
        let is_new = settled && state.reported != Some(observed);
        if is_new {
            state.reported = Some(observed);
        }
        is_new
    }

    /// The last reported verdict on a container.
    pub fn reported(&self, container: &K) -> Option<(Outcome, PreloadReason)> {
        self.containers.get(container)?.reported
    }

    /// Removes the containers that no longer exist.
    pub fn retain(&mut self, exists: impl Fn(&K) -> bool) {
        self.containers.retain(|container, _| exists(container));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn verdict(outcome: Outcome, reason: PreloadReason) -> Verdict {
        Verdict { outcome, ..Verdict::unknown(reason) }
    }

    #[test]
    fn bad_verdicts_wait_and_good_ones_do_not() {
        let mut debouncer = Debouncer::new(Duration::from_secs(30));
        let live = verdict(Outcome::Live, PreloadReason::PreloadLive);
        let bad = verdict(Outcome::NotLive, PreloadReason::NotMapped);
        let other = verdict(Outcome::NotLive, PreloadReason::FileMissing);
        for (at, verdict, reported) in [
            (0, &bad, false),
            (10, &live, true),
            (20, &live, false),
            (30, &bad, false),
            (59, &bad, false),
            (60, &bad, true),
            (90, &bad, false),
            (100, &other, false),
            (110, &bad, false),
            (145, &bad, false),
            (150, &live, true),
        ] {
            assert_eq!(debouncer.record("c", verdict, Duration::from_secs(at)), reported, "at {at}");
        }
        assert_eq!(debouncer.reported(&"c"), Some((Outcome::Live, PreloadReason::PreloadLive)));
        debouncer.retain(|_| false);
        assert_eq!(debouncer.reported(&"c"), None);
    }
}
