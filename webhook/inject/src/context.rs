//! What the injection of one container depends on, and collects.

use crate::kind::WorkloadKind;
use crate::operation::Operation;
use crate::policy::DumpStrategy;
use crate::reason::Reason;
use crate::report::{Action, Warning};

/// Collects actions, operations and warnings of one container.
pub(crate) struct ContainerContext<'o> {
    /// Prefix of messages, such as `replica Master, `; empty for a Pod.
    pub(crate) template: &'o str,
    pub(crate) container: &'o str,
    pub(crate) actions: Vec<Action>,
    pub(crate) operations: &'o mut Vec<Operation>,
    pub(crate) warnings: &'o mut Vec<Warning>,
}

impl ContainerContext<'_> {
    pub(crate) fn record_action(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn warn(&mut self, reason: Reason, message: &str) {
        let Self { template, container, .. } = self;
        self.warnings
            .push(Warning { reason, message: format!("{template}container {container}: {message}") });
    }
}

/// What the injection of a container depends on beside the container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodContext {
    pub(crate) kind: WorkloadKind,
    pub(crate) rank_zero: bool,
    /// Whether the job is labelled as one of MindSpore.
    pub(crate) is_mindspore: bool,
    pub(crate) dump: DumpStrategy,
}
