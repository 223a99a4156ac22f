//! Keeps replicas from taking turns in renewing what the other has just renewed.
//!
//! Clocks that differ, two Deployments of different names on one Secret, or a tool that puts an old content back would
//! else make a new certificate at every look, for ever.

use std::collections::VecDeque;
use std::time::Duration;

/// Renewals that are within reason: a first install, and a change of authority by hand soon after.
const TIMES: usize = 3;

/// The time in which they are.
const WITHIN: Duration = Duration::from_mins(10);

/// How often this replica has renewed something lately.
#[derive(Debug)]
pub(crate) struct Restraint {
    within: Duration,
    renewed: VecDeque<Duration>,
}

impl Restraint {
    /// For leaves of this life: what lives for minutes may be renewed more often.
    pub(crate) fn new(leaf_validity: Duration) -> Self {
        Self { within: WITHIN.min(leaf_validity / 2), renewed: VecDeque::new() }
    }

    /// How often, and in what time, when that is too often already.
    pub(crate) fn exceeded(&mut self, tick: Duration) -> Option<(usize, Duration)> {
        while self.renewed.front().is_some_and(|at| tick.saturating_sub(*at) >= self.within) {
            self.renewed.pop_front();
        }
        (self.renewed.len() >= TIMES).then_some((self.renewed.len(), self.within))
    }

    /// This replica has renewed something.
    pub(crate) fn renewed(&mut self, tick: Duration) {
        self.renewed.push_back(tick);
    }
}
