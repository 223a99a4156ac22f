//! How long to wait after a failure.

use std::time::Duration;

/// Doubles with every failure in a row, up to a limit, by chance up to twice as long: thousands of agents whose API
/// server comes back must not come at once.
#[derive(Debug)]
pub(crate) struct Pause {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl Pause {
    /// Starts with `first`, never exceeds `last` by more than chance.
    pub(crate) const fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, next: first }
    }

    /// All is well again.
    pub(crate) const fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause, no shorter than what the server asks for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let wait = self.next.max(asked.unwrap_or_default());
        self.next = (self.next * 2).min(self.last);
        wait + self.first.max(wait / 4).mul_f64(fastrand::f64())
    }
}
