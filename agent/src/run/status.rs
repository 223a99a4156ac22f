//! What the tasks share, and how `/status` shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde::Serialize;
use swansong_runtime::supervisor::{TaskStatus, Tasks};
use tokio::sync::watch;

use super::NodeSeen;
use crate::checks::DialOutcome;
use crate::finding::{Ready, Report};
use crate::metrics::Metrics;
use crate::preload::{InjectedPod, PodVerdict};
use crate::readiness::Condition;
use crate::relay::{NpuPod, View as FaultView};

/// The last round of checks.
#[derive(Debug, Clone)]
pub(super) enum Look {
    NotYet,
    Hangs,
    Failed(String),
    Done(Arc<Report>),
}

/// Each part is written by one task and read by others.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) node_name: String,
    pub(super) boot_id: Option<String>,
    pub(super) tasks: Tasks,
    pub(super) metrics: Arc<Metrics>,
    pub(super) look: watch::Sender<Look>,
    /// Whether something is about to change.
    pub(super) soon: watch::Sender<bool>,
    pub(super) standing: watch::Sender<Option<Ready>>,
    pub(super) dialled: watch::Sender<Option<DialOutcome>>,
    pub(super) seen: NodeSeen,
    pub(super) pods: watch::Sender<Vec<InjectedPod>>,
    pub(super) verdicts: watch::Sender<Arc<Vec<PodVerdict>>>,
    /// The pods that use NPUs; read only where faults are told.
    pub(super) npu_pods: watch::Sender<Option<Arc<Vec<NpuPod>>>>,
    /// What the relay of faults says; `None` where there is none.
    pub(super) faults: watch::Sender<Option<Arc<FaultView>>>,
    ready: AtomicBool,
}

/// The whole picture of the node.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    node: &'a str,
    version: &'static str,
    boot_id: Option<&'a str>,
    /// What is to be told, after all holds.
    standing: Option<Ready>,
    /// What the last round of checks saw.
    report: Option<&'a Report>,
    checks_hang: bool,
    /// What the Node shows; `null` while it isn't known.
    told: Option<ToldView<'a>>,
    preload: &'a [PodVerdict],
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<&'a FaultView>,
    tasks: Vec<TaskStatus>,
}

#[derive(Serialize)]
struct ToldView<'a> {
    condition: Option<ConditionView<'a>>,
    label: Option<&'a str>,
    tainted: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConditionView<'a> {
    status: Ready,
    reason: &'a str,
    message: &'a str,
    last_heartbeat_time: String,
    last_transition_time: String,
}

impl Shared {
    pub(super) fn new(
        node_name: String,
        boot_id: Option<String>,
        tasks: Tasks,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            node_name,
            boot_id,
            tasks,
            metrics,
            look: watch::Sender::new(Look::NotYet),
            soon: watch::Sender::new(false),
            standing: watch::Sender::new(None),
            dialled: watch::Sender::new(None),
            seen: watch::Sender::new(None),
            pods: watch::Sender::new(Vec::new()),
            verdicts: watch::Sender::new(Arc::default()),
            npu_pods: watch::Sender::new(None),
            faults: watch::Sender::new(None),
            ready: AtomicBool::new(false),
        }
    }

    /// What stands, and whether that is about to change.
    pub(super) fn settled(&self, standing: Option<Ready>, unsettled: bool) {
        self.soon.send_if_modified(|soon| std::mem::replace(soon, unsettled) != unsettled);
        self.standing.send_replace(standing);
        self.metrics.stands(standing);
    }

    /// The node shows what the first whole round of checks said.
    pub(super) fn told(&self) {
        self.ready.store(true, Relaxed);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Pretty JSON, since people read it too.
    pub(super) fn status(&self) -> String {
        let look = self.look.borrow().clone();
        let seen = self.seen.borrow().clone();
        let verdicts = self.verdicts.borrow().clone();
        let faults = self.faults.borrow().clone();
        let told = seen.as_ref().map(|node| ToldView {
            condition: node.observed.condition.as_ref().map(ConditionView::of),
            label: node.observed.label.as_deref(),
            tainted: node.observed.tainted,
        });
        let view = View {
            node: &self.node_name,
            version: env!("CARGO_PKG_VERSION"),
            boot_id: self.boot_id.as_deref(),
            standing: *self.standing.borrow(),
            report: if let Look::Done(report) = &look { Some(report) } else { None },
            checks_hang: matches!(look, Look::Hangs),
            told,
            preload: &verdicts,
            faults: faults.as_deref(),
            tasks: self.tasks.status(),
        };
        // Strings, numbers and lists can always be written.
        serde_json::to_string_pretty(&view).unwrap_or_default() + "\n"
    }
}

impl<'a> ConditionView<'a> {
    fn of(condition: &'a Condition) -> Self {
        let time = |time| humantime::format_rfc3339_seconds(time).to_string();
        Self {
            status: condition.status,
            reason: &condition.reason,
            message: &condition.message,
            last_heartbeat_time: time(condition.heartbeat),
            last_transition_time: time(condition.transition),
        }
    }
}
