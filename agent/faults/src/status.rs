//! The faults as `/status` shows them.

use serde::Serialize;
use swansong_fault_model::Fault;
use swansong_fault_model::FaultTracker;
use swansong_fault_model::reconcile::Reconciler;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::condition::ConditionState;
use crate::outcomes::{FollowedFault, Outcomes};

/// The faults of this node.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    condition: Option<ConditionState>,
    /// Why the state is kept in memory only.
    state_problem: Option<String>,
    /// Every fault that hasn't ended at ClusterD.
    faults: Vec<Fault>,
    /// The jobs whose outcome is awaited, by fault.
    outcomes: BTreeMap<String, FollowedFault>,
    /// What keeps batches from ClusterD.
    send_problem: Option<SendProblem>,
}

#[derive(Debug, Clone, Serialize)]
struct SendProblem {
    message: String,
    seconds: u64,
}

impl Status {
    pub(crate) fn new(
        condition: Option<ConditionState>,
        state_problem: Option<String>,
        tracker: &FaultTracker,
        outcomes: &Outcomes,
        reconciler: &Reconciler,
        now: Duration,
    ) -> Self {
        Self {
            condition,
            state_problem,
            faults: tracker.faults().cloned().collect(),
            outcomes: outcomes.followed().clone(),
            send_problem: reconciler.trouble().map(|trouble| SendProblem {
                message: trouble.error.message().to_owned(),
                seconds: now.saturating_sub(trouble.since).as_secs(),
            }),
        }
    }
}
