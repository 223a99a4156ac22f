//! How often a difference may be written away.

use std::time::Duration;

use super::Cause;

/// As many corrections at once, and one more for each [`REFILL`]: another hand that keeps undoing them must not turn
/// the agent into a source of load.
const MOST: u32 = 4;
const REFILL: Duration = Duration::from_mins(2);

/// Whether the node has shown what it should since that changed last, and what corrections are left.
#[derive(Debug)]
pub(super) struct Ledger {
    cause: Option<Cause>,
    left: u32,
    since: Duration,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { cause: Some(Cause::Transition), left: MOST, since: Duration::ZERO }
    }
}

impl Ledger {
    /// Something else is to be shown from now on.
    pub(super) fn expect(&mut self) {
        self.cause = Some(Cause::Transition);
    }

    /// It is shown.
    pub(super) fn matches(&mut self) {
        self.cause = None;
    }

    /// It isn't. What was never shown is tried again and again, at the pace of whoever tries; what was, is corrected
    /// as long as there are corrections left.
    pub(super) fn mismatch(&mut self, now: Duration) -> Option<Cause> {
        if self.cause.is_none() && self.pay(now) {
            self.cause = Some(Cause::Correction);
        }
        self.cause
    }

    /// Takes a correction, if there is one left.
    pub(super) fn pay(&mut self, now: Duration) -> bool {
        while self.left < MOST && now.saturating_sub(self.since) >= REFILL {
            self.left += 1;
            self.since += REFILL;
        }
        if self.left == MOST {
            self.since = now;
        }
        let paid = self.left > 0;
        self.left = self.left.saturating_sub(1);
        paid
    }
}
