//! The Events about a fault: on the Node, on the Pods that it hits, and on their jobs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use swansong_clusterd::process_fault::ReportError;
use swansong_fault_model::Fault;
use swansong_runtime::events::{Event, EventSender, container_reference, node_reference};

use crate::outcomes::{AffectedJob, GONE, JobOutcome, UNKNOWN};
use crate::pod::{NpuPod, Owner};
use crate::preflight::Objection;

/// The annotation of Events with the id of the fault.
const FAULT_ID: &str = "swansong.dev/fault-id";

/// Writes the Events about faults.
#[derive(Debug, Clone)]
pub struct FaultEvents {
    node: String,
    sender: EventSender,
}

impl FaultEvents {
    pub const fn new(node: String, sender: EventSender) -> Self {
        Self { node, sender }
    }

    pub fn began(&self, fault: &Fault, pods: &[NpuPod]) {
        let text = format!("{} ({})", fault.describe(), fault.classification.reason);
        self.node(true, "DeviceFault", &fault.id, text);
        if fault.ends_ranks() {
            for pod in pods.iter().filter(|pod| pod.uses(fault.subject)) {
                self.publish(target_pod(pod), true, "DeviceFault", &fault.id, fault.describe());
            }
        }
    }

    pub fn ended(&self, fault: &Fault) {
        let sent = if fault.may_be_known() { "" } else { ", and was never sent to ClusterD" };
        self.node(false, "DeviceFaultEnded", &fault.id, format!("ended{sent}: {}", fault.describe()));
    }

    /// An event that nothing ends.
    pub fn happened(&self, fault: &Fault) {
        self.node(true, "DeviceNotice", &fault.id, fault.describe());
    }

    /// The device plugin reports the fault to ClusterD.
    pub fn reported_by_device_plugin(&self, fault: &Fault) {
        let text = format!("the device plugin reports it to ClusterD: {}", fault.describe());
        self.node(false, "FaultReportedByDevicePlugin", &fault.id, text);
    }

    /// The fault isn't sent.
    pub fn blocked(&self, fault: &Fault, objections: &[Objection], pods: &[NpuPod]) {
        let all: Vec<String> = objections.iter().map(ToString::to_string).collect();
        let text = format!("the fault of {} isn't sent to ClusterD: {}", fault.subject, all.join("; "));
        self.node(true, "FaultBlocked", &fault.id, text);
        for pod in pods.iter().filter(|pod| pod.uses(fault.subject)) {
            let name = format!("{}/{}", pod.namespace, pod.name);
            for objection in objections.iter().filter(|objection| objection.pod.as_ref() == Some(&name)) {
                let text = format!("{} is faulty, and ClusterD isn't notified: {objection}", fault.subject);
                self.publish(target_pod(pod), true, "FaultBlocked", &fault.id, text.clone());
                self.job(&pod.namespace, pod.job.as_ref(), true, "FaultBlocked", &fault.id, text);
            }
        }
    }

    /// ClusterD accepted the fault.
    pub fn relayed(&self, fault: &Fault, jobs: &[AffectedJob], transport: &str) {
        let text = format!("ClusterD accepted it by {transport}: {}", fault.describe());
        self.node(false, "FaultRelayed", &fault.id, text);
        for job in jobs {
            let then = if !fault.ends_ranks() {
                "it handles it by the job's subHealthyStrategy"
            } else if job.dumps {
                "it ends the ranks there and orders a dump"
            } else {
                "it ends the ranks there without a dump, which the job doesn't ask for"
            };
            let text = format!(
                "{} of node {} is registered at ClusterD as faulty; {then}",
                fault.subject, self.node
            );
            self.affected(job, true, "FaultRelayed", &fault.id, text);
        }
    }

    /// The lost ranks of a job were reported directly.
    pub fn ranks_reported(&self, id: &str, job: &AffectedJob, result: &Result<(), ReportError>) {
        let ranks = &job.fast_ranks;
        match result {
            Ok(()) => {
                let text = format!("the lost ranks {ranks:?} were reported to ClusterD directly");
                self.affected(job, false, "RanksReported", id, text);
            }
            Err(error) => {
                let text = format!(
                    "the lost ranks {ranks:?} could not be reported to ClusterD directly, so that it orders the dump \
                     some ten seconds later: {error}"
                );
                self.affected(job, true, "RanksNotReported", id, text);
            }
        }
    }

    /// ClusterD accepted the end of the fault.
    pub fn recovery_relayed(&self, fault: &Fault) {
        let text = format!("ClusterD accepted the end of: {}", fault.describe());
        self.node(false, "FaultRecoveryRelayed", &fault.id, text);
    }

    pub fn withdrawn(&self, fault: &Fault, why: &str) {
        self.node(
            false,
            "FaultWithdrawn",
            &fault.id,
            format!("withdrawn, since {why}: {}", fault.describe()),
        );
    }

    /// ClusterD refused the fault, which isn't sent again.
    pub fn refused(&self, id: &str, why: &str) {
        self.node(true, "FaultRefused", id, why.to_owned());
    }

    /// The outcome of a job.
    pub fn outcome(&self, JobOutcome { id, subject, job, .. }: &JobOutcome) {
        let outcome = job.outcome.as_deref().unwrap_or(UNKNOWN);
        let (is_warning, reason, text) = match outcome {
            "dump-success" => (false, "DumpSucceeded", "the job has saved its dying checkpoint".to_owned()),
            "dump-failed" => (true, "DumpFailed", "the job couldn't save its dying checkpoint".to_owned()),
            GONE => {
                let text = "the job's PodGroup was deleted before ClusterD reported the result of the dump";
                (true, "DumpOutcomeUnknown", text.to_owned())
            }
            UNKNOWN => {
                let text = "ClusterD reports no result of the dump, or the same as for an earlier one; check the \
                            checkpoint";
                (true, "DumpOutcomeUnknown", text.to_owned())
            }
            // Of several strategies `exit` is the last.
            other if other.ends_with("-failed") || other == "exit-completed" => {
                let text = format!("ClusterD reports {other} (ProcessRecoverStatus), and nothing of a dump");
                (true, "JobNotRecovered", text)
            }
            other => (false, "JobRecovered", format!("ClusterD reports {other} (ProcessRecoverStatus)")),
        };
        let text = format!("after the fault of {subject} on node {}: {text}", self.node);
        self.node(is_warning, reason, id, format!("{}/{}: {text}", job.namespace, job.job.name));
        if outcome == GONE {
            self.job(&job.namespace, Some(&job.job), is_warning, reason, id, text);
        } else {
            self.affected(job, is_warning, reason, id, text);
        }
    }

    fn node(&self, is_warning: bool, reason: &'static str, id: &str, message: String) {
        self.publish(node_reference(&self.node), is_warning, reason, id, message);
    }

    /// On the Pod and on its job.
    fn affected(&self, job: &AffectedJob, is_warning: bool, reason: &'static str, id: &str, message: String) {
        let pod = container_reference(&job.namespace, &job.pod, &job.pod_uid, &job.container);
        self.publish(pod, is_warning, reason, id, message.clone());
        self.job(&job.namespace, Some(&job.job), is_warning, reason, id, message);
    }

    fn job(
        &self,
        namespace: &str,
        job: Option<&Owner>,
        is_warning: bool,
        reason: &'static str,
        id: &str,
        message: String,
    ) {
        if let Some(job) = job.filter(|job| !job.uid.is_empty()) {
            self.publish(job_reference(namespace, job), is_warning, reason, id, message);
        }
    }

    fn publish(
        &self,
        regarding: ObjectReference,
        warning: bool,
        reason: &'static str,
        id: &str,
        message: String,
    ) {
        let annotations = BTreeMap::from([(FAULT_ID, id.to_owned())]);
        self.sender.send(Event { regarding, warning, reason, message, annotations, is_state: false });
    }
}

fn target_pod(pod: &NpuPod) -> ObjectReference {
    container_reference(&pod.namespace, &pod.name, &pod.uid, &pod.container)
}

fn job_reference(namespace: &str, job: &Owner) -> ObjectReference {
    ObjectReference {
        api_version: Some(job.api_version.clone()),
        kind: Some(job.kind.clone()),
        namespace: Some(namespace.to_owned()),
        name: Some(job.name.clone()),
        uid: Some(job.uid.clone()),
        ..ObjectReference::default()
    }
}
