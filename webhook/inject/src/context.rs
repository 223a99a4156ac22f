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
    pub(crate) rank: Rank,
    /// Whether at least one pod of the template is known to have another rank than 0.
    pub(crate) has_other_ranks: bool,
    /// Whether the job is labelled as one of MindSpore.
    pub(crate) is_mindspore: bool,
    pub(crate) dump: DumpStrategy,
}

/// Whether the pods of a template have rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Its pods have rank 0.
    Zero,
    /// Its pods have other ranks.
    Other,
    /// The pod with index 0 of this task of a Volcano Job may have rank 0, the others have other ranks.
    ByIndex {
        /// Whether the name of the task shows that its pod with index 0 has rank 0.
        named: bool,
    },
    /// A Pod that doesn't show its rank.
    Unknown,
}
