//! Bounds what is added to one object.
//!
//! etcd stores objects of at most 1.5 MiB. Without a bound, 20,000 templates of 60 bytes, or one long annotation that
//! applies to each of 5,000 containers, would result in a patch of hundreds of MiB.

use super::operation::Operation;
use super::report::Warning;

/// In bytes; more than etcd stores, because a patch is longer than what it adds.
const LIMIT: usize = 4 << 20;

/// Bytes of an operation without its path and value.
const OPERATION_OVERHEAD: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Budget {
    spent: usize,
    operations: usize,
    warnings: usize,
    /// Whether annotations exceed the API server's limit.
    pub(super) annotations_exceeded: bool,
}

impl Budget {
    pub(super) const fn spend(&mut self, bytes: usize) {
        self.spent = self.spent.saturating_add(bytes);
    }

    /// Counts the operations and warnings that were added since the last call.
    pub(super) fn count(&mut self, operations: &[Operation], warnings: &[Warning]) {
        let values = operations[self.operations..].iter();
        let values = values.map(|operation| {
            OPERATION_OVERHEAD
                + operation.path.len()
                + operation.value.as_ref().map_or(0, |value| value.get().len())
        });
        let messages = warnings[self.warnings..].iter().map(|warning| warning.message.len());
        self.spend(values.chain(messages).sum());
        (self.operations, self.warnings) = (operations.len(), warnings.len());
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.spent > LIMIT
    }
}
