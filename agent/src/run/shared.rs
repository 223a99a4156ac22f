//! The state that tasks share, and how `/status` shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde::Serialize;
use swansong_api::pod_status::PodStatus;
use swansong_faults::{Activity, NpuPod, Status as FaultStatus};
use swansong_runtime::supervisor::{TaskStatus, Tasks};
use tokio::sync::watch;

use crate::checks::DialOutcome;
use crate::finding::{Ready, Report};
use crate::metrics::Metrics;
use crate::node::NodeState;
use crate::preload::{InjectedPod, PodVerdict};
use crate::readiness::{CheckState, ObservedNode};

/// The state of the rounds of checks.
#[derive(Debug, Clone)]
pub(super) enum Round {
    Pending,
    Hanging,
    Failed(String),
    Completed(Arc<Report>),
}

impl Round {
    pub(super) fn check_state(&self) -> CheckState<'_> {
        match self {
            Self::Pending => CheckState::Pending,
            Self::Hanging => CheckState::Hanging,
            Self::Failed(problem) => CheckState::Failed(problem),
            Self::Completed(report) => CheckState::Completed(&report.checks),
        }
    }
}

/// Each field is written by one task and read by others.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) node_name: String,
    pub(super) boot_id: Option<String>,
    pub(super) tasks: Tasks,
    pub(super) metrics: Metrics,
    pub(super) round: watch::Sender<Round>,
    /// Whether the desired status is about to change.
    pub(super) is_settling: watch::Sender<bool>,
    pub(super) desired: watch::Sender<Option<Ready>>,
    pub(super) dial_outcome: watch::Sender<Option<DialOutcome>>,
    /// The observed Node; `None` if it is unknown.
    pub(super) node: watch::Sender<Option<Arc<NodeState>>>,
    pub(super) pods: watch::Sender<Vec<InjectedPod>>,
    pub(super) verdicts: watch::Sender<Arc<Vec<PodVerdict>>>,
    /// The Pods that use NPUs.
    pub(super) npu_pods: watch::Sender<Option<Arc<Vec<NpuPod>>>>,
    /// What is seen of their sockets.
    pub(super) pod_statuses: watch::Sender<Arc<Vec<PodStatus>>>,
    /// What is seen of their dumps.
    pub(super) activity: watch::Sender<Arc<Activity>>,
    /// The state of the fault pipeline; `None` if faults aren't reported.
    pub(super) faults: watch::Sender<Option<Arc<FaultStatus>>>,
    is_ready: AtomicBool,
}

/// The content of `/status`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    node: &'a str,
    version: &'static str,
    boot_id: Option<&'a str>,
    /// The status that the Node should show.
    desired: Option<Ready>,
    /// What the Node shows; `null` if it is unknown.
    observed: Option<&'a ObservedNode>,
    /// The last completed round of checks.
    report: Option<&'a Report>,
    checks_hang: bool,
    preload: &'a [PodVerdict],
    /// What is seen of the Pods with NPUs.
    pods: &'a [PodStatus],
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<&'a FaultStatus>,
    tasks: Vec<TaskStatus>,
}

impl Shared {
    pub(super) fn new(node_name: String, boot_id: Option<String>, tasks: Tasks, metrics: Metrics) -> Self {
        Self {
            node_name,
            boot_id,
            tasks,
            metrics,
            round: watch::Sender::new(Round::Pending),
            is_settling: watch::Sender::new(false),
            desired: watch::Sender::new(None),
            dial_outcome: watch::Sender::new(None),
            node: watch::Sender::new(None),
            pods: watch::Sender::new(Vec::new()),
            verdicts: watch::Sender::new(Arc::default()),
            npu_pods: watch::Sender::new(None),
            pod_statuses: watch::Sender::new(Arc::default()),
            activity: watch::Sender::new(Arc::default()),
            faults: watch::Sender::new(None),
            is_ready: AtomicBool::new(false),
        }
    }

    pub(super) fn set_desired(&self, desired: Option<Ready>, is_settling: bool) {
        self.is_settling.send_if_modified(|known| std::mem::replace(known, is_settling) != is_settling);
        self.desired.send_replace(desired);
        self.metrics.set_ready(desired);
    }

    /// Stores the state of the Node, unless a newer one is known: watch and responses of writes are concurrent.
    pub(super) fn set_node(&self, state: NodeState) {
        self.node.send_if_modified(|known| {
            if known.as_ref().is_some_and(|known| !state.is_as_new_as(known) || **known == state) {
                return false;
            }
            *known = Some(Arc::new(state));
            true
        });
    }

    /// The Node doesn't exist. Returns whether it did before.
    pub(super) fn forget_node(&self) -> bool {
        self.is_ready.store(false, Relaxed);
        self.node.send_replace(None).is_some()
    }

    /// The tasks were stopped, and those of another configuration follow.
    pub(super) fn forget_tasks(&self) {
        self.tasks.clear();
        self.dial_outcome.send_replace(None);
        self.activity.send_replace(Arc::default());
        self.faults.send_replace(None);
    }

    /// The Node shows the result of a completed round.
    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Relaxed);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Relaxed)
    }

    /// The content of `/status`, as indented JSON.
    pub(super) fn status(&self) -> String {
        let round = self.round.borrow().clone();
        let node = self.node.borrow().clone();
        let verdicts = self.verdicts.borrow().clone();
        let pods = self.pod_statuses.borrow().clone();
        let faults = self.faults.borrow().clone();
        let status = Status {
            node: &self.node_name,
            version: env!("CARGO_PKG_VERSION"),
            boot_id: self.boot_id.as_deref(),
            desired: *self.desired.borrow(),
            observed: node.as_ref().map(|node| &node.observed),
            report: if let Round::Completed(report) = &round { Some(report) } else { None },
            checks_hang: matches!(round, Round::Hanging),
            preload: &verdicts,
            pods: &pods,
            faults: faults.as_deref(),
            tasks: self.tasks.status(),
        };
        // Strings, numbers and lists can always be serialized.
        serde_json::to_string_pretty(&status).unwrap_or_default() + "\n"
    }
}
