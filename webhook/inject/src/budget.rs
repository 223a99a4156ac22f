//! How much may be added to one object.
//!
//! An object is stored with at most 1.5 MiB (etcd), so whoever would get more than that can't have it. Without a bound, some
//! 20,000 templates of 60 bytes, or one long annotation that counts for each of 5,000 containers, would make a patch of
//! hundreds of MiB from a request that an API server takes.

use super::operation::Operation;
use super::report::Warning;

/// Somewhat more than can be stored, as a patch is longer than what it adds.
const MOST: usize = 4 << 20;

/// What an operation costs beside its texts.
const OPERATION: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Budget {
    spent: usize,
    operations: usize,
    warnings: usize,
}

impl Budget {
    pub(super) const fn spend(&mut self, bytes: usize) {
        self.spent = self.spent.saturating_add(bytes);
    }

    /// Counts what has come to the two lists since the last time.
    pub(super) fn count(&mut self, operations: &[Operation], warnings: &[Warning]) {
        let values = operations[self.operations..].iter();
        let values = values.map(|operation| {
            OPERATION + operation.path.len() + operation.value.as_ref().map_or(0, |value| value.get().len())
        });
        let messages = warnings[self.warnings..].iter().map(|warning| warning.message.len());
        self.spend(values.chain(messages).sum());
        (self.operations, self.warnings) = (operations.len(), warnings.len());
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.spent > MOST
    }
}
