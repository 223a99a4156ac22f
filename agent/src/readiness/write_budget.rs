//! Limits corrections of other clients' changes.

use std::time::Duration;

use super::WriteCause;

/// The number of corrections in a burst, of which one returns after each [`REFILL`]. The agent must not compete without
/// limit with a client that keeps undoing its writes.
const BURST: u32 = 4;
const REFILL: Duration = Duration::from_mins(2);

/// Whether the Node has shown the desired state since that changed last, and the number of corrections left.
#[derive(Debug)]
pub(super) struct WriteBudget {
    /// Why the Node differs from the desired state; `None` if it doesn't.
    cause: Option<WriteCause>,
    left: u32,
    refilled: Duration,
}

impl Default for WriteBudget {
    fn default() -> Self {
        Self { cause: Some(WriteCause::Transition), left: BURST, refilled: Duration::ZERO }
    }
}

impl WriteBudget {
    /// The desired state has changed.
    pub(super) fn expect_transition(&mut self) {
        self.cause = Some(WriteCause::Transition);
    }

    /// The Node shows the desired state.
    pub(super) fn observe_match(&mut self) {
        self.cause = None;
    }

    /// The Node doesn't show the desired state. Returns the cause of a write, unless it would be a correction and none is
    /// left. Until the Node has shown the desired state once, writes are retried without limit.
    pub(super) fn observe_mismatch(&mut self, now: Duration) -> Option<WriteCause> {
        if self.cause.is_none() && self.take(now) {
            self.cause = Some(WriteCause::Correction);
        }
        self.cause
    }

    /// Takes a correction, if one is left.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        while self.left < BURST && now.saturating_sub(self.refilled) >= REFILL {
            self.left += 1;
            self.refilled += REFILL;
        }
        if self.left == BURST {
            self.refilled = now;
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }

    /// The time until the next correction is available.
    pub(super) fn wait(&self, now: Duration) -> Duration {
        (self.refilled + REFILL).saturating_sub(now)
    }
}
