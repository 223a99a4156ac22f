//! The report of a rehearsal.

use std::fmt;
use std::time::Instant;

use serde::Serialize;
use swansong_faults::Route;

use crate::finding::{Status, escape};

/// A step of a rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StepName {
    /// No job on the node asks for a dump.
    Jobs,
    /// The device plugin publishes the node's devices.
    DevicePlugin,
    /// The code is registered as one on which ClusterD doesn't act.
    Registration,
    /// `statistic-fault-info` can be read.
    Observe,
    /// A transport carries the fault.
    Send,
    /// ClusterD shows the fault.
    Appear,
    /// A transport carries the end of the fault.
    Withdraw,
    /// ClusterD shows the fault no longer.
    Disappear,
}

/// What a step found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Which step it is.
    pub step: StepName,
    /// Whether it passed.
    pub status: Status,
    /// When it ended, in seconds since the rehearsal began.
    pub seconds: f64,
    /// Details and, unless it passed, what to do.
    pub message: String,
}

/// The result of a rehearsal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The node's name.
    pub node: String,
    /// Failed if a step has, else unknown if a step is.
    pub status: Status,
    /// The fault's id, if one was sent.
    pub fault_id: Option<String>,
    /// The device that it names.
    pub device: Option<u32>,
    /// The transport that carried it.
    pub transport: Option<Route>,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// Records the steps.
pub(super) struct Log<F> {
    report: Report,
    started: Instant,
    on_step: F,
}

impl<F: FnMut(&Step)> Log<F> {
    pub(super) fn new(node: &str, on_step: F) -> Self {
        let report = Report {
            node: node.to_owned(),
            status: Status::Pass,
            fault_id: None,
            device: None,
            transport: None,
            steps: Vec::new(),
        };
        Self { report, started: Instant::now(), on_step }
    }

    pub(super) fn add(&mut self, step: StepName, status: Status, message: impl Into<String>) {
        let seconds = (self.started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        let step = Step { step, status, seconds, message: message.into() };
        (self.on_step)(&step);
        self.report.steps.push(step);
    }

    /// Adds a step and returns whether it passed.
    pub(super) fn judge(&mut self, step: StepName, (status, message): (Status, String)) -> bool {
        self.add(step, status, message);
        status == Status::Pass
    }

    pub(super) const fn device(&mut self, device: u32) {
        self.report.device = Some(device);
    }

    pub(super) fn sending(&mut self, fault_id: &str) {
        self.report.fault_id = Some(fault_id.to_owned());
    }

    pub(super) const fn sent(&mut self, route: Route) {
        self.report.transport = Some(route);
    }

    pub(super) fn finish(mut self) -> Report {
        let is = |status| self.report.steps.iter().any(|step| step.status == status);
        self.report.status = match (is(Status::Fail), is(Status::Unknown)) {
            (true, _) => Status::Fail,
            (false, true) => Status::Unknown,
            (false, false) => Status::Pass,
        };
        self.report
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, status, seconds, message } = self;
        let name: &str = step.into();
        write!(f, "{:<7}  {seconds:>7.3}s  {name:<13}  {}", status.as_str(), escape(message))
    }
}
