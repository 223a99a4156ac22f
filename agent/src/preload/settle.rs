//! Verdicts that may be told.
//!
//! One look may fall between the start of a program and the work of its loader, and a job that is being restarted
//! shows every state for a moment. So a bad verdict is told only after it has stood for the grace time; a good one at
//! once. Time is handed in.

use std::collections::HashMap;
use std::time::Duration;

use super::verdict::{Outcome, Verdict};
use super::why::Why;

/// What is remembered of each container.
#[derive(Debug)]
pub struct Settler<K> {
    grace: Duration,
    known: HashMap<K, Known>,
}

#[derive(Debug)]
struct Known {
    seen: (Outcome, Why),
    since: Duration,
    told: Option<(Outcome, Why)>,
}

impl<K: std::hash::Hash + Eq> Settler<K> {
    /// Remembers nothing yet.
    pub fn new(grace: Duration) -> Self {
        Self { grace, known: HashMap::new() }
    }

    /// Takes in a verdict at `now` (on any clock that doesn't go back). True if it is news that may be told.
    pub fn settle(&mut self, container: K, verdict: &Verdict, now: Duration) -> bool {
        let seen = (verdict.outcome, verdict.reason);
        let known = self.known.entry(container).or_insert(Known { seen, since: now, told: None });
        if known.seen != seen {
            known.seen = seen;
            known.since = now;
        }
        let settled = match verdict.outcome {
            Outcome::Live => true,
            Outcome::PartlyLive | Outcome::NotLive | Outcome::Unknown => {
                now.saturating_sub(known.since) >= self.grace
            }
        };
        let news = settled && known.told != Some(seen);
        if news {
            known.told = Some(seen);
        }
        news
    }

    /// What was told of a container last.
    pub fn told(&self, container: &K) -> Option<(Outcome, Why)> {
        self.known.get(container)?.told
    }

    /// Forgets the containers that aren't there any more.
    pub fn keep(&mut self, there: impl Fn(&K) -> bool) {
        self.known.retain(|container, _| there(container));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preload::verdict::unknown;

    fn verdict(outcome: Outcome, reason: Why) -> Verdict {
        Verdict { outcome, ..unknown(reason) }
    }

    #[test]
    fn bad_news_wait_and_good_news_do_not() {
        let mut settler = Settler::new(Duration::from_secs(30));
        let live = verdict(Outcome::Live, Why::PreloadLive);
        let bad = verdict(Outcome::NotLive, Why::NotMapped);
        let other = verdict(Outcome::NotLive, Why::FileMissing);
        for (at, verdict, news) in [
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
            assert_eq!(settler.settle("c", verdict, Duration::from_secs(at)), news, "at {at}");
        }
        assert_eq!(settler.told(&"c"), Some((Outcome::Live, Why::PreloadLive)));
        settler.keep(|_| false);
        assert_eq!(settler.told(&"c"), None);
    }
}
