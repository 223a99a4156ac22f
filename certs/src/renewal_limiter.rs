//! Limits how often a replica renews certificates.
//!
//! Without a limit, clocks that differ, two Deployments with different names on one Secret, or a tool that restores an
//! old Secret would cause a new certificate at every check.

use std::collections::VecDeque;
use std::time::Duration;

/// Enough for a first install and a rotation by hand soon after.
const MAX_RENEWALS: usize = 3;

const WINDOW: Duration = Duration::from_mins(10);

/// Counts the renewals of this replica in a sliding window.
#[derive(Debug)]
pub(crate) struct RenewalLimiter {
    window: Duration,
    renewals: VecDeque<Duration>,
}

impl RenewalLimiter {
    /// Leaves that are valid for minutes may be renewed more often.
    pub(crate) fn new(leaf_validity: Duration) -> Self {
        Self { window: WINDOW.min(leaf_validity / 2), renewals: VecDeque::new() }
    }

    /// Returns the number of renewals and the window when no further renewal is allowed.
    pub(crate) fn exceeded(&mut self, tick: Duration) -> Option<(usize, Duration)> {
        while self.renewals.front().is_some_and(|at| tick.saturating_sub(*at) >= self.window) {
            self.renewals.pop_front();
        }
        (self.renewals.len() >= MAX_RENEWALS).then_some((self.renewals.len(), self.window))
    }

    pub(crate) fn record(&mut self, tick: Duration) {
        self.renewals.push_back(tick);
    }
}
