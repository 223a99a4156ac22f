//! The Events about a fault: on the Node, on the Pods that it hits, and on their jobs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::ObjectReference;
use swansong_api::annotations::FAULT_ID;
use swansong_fault_model::outcome::{Outcome, Unknown};
use swansong_fault_model::rank_process::NoRankEnded;
use swansong_fault_model::{Fault, Subject};
use swansong_runtime::events::{Event, EventSender, container_reference, node_reference};

use crate::outcomes::{AffectedJob, JobOutcome};
use crate::pod::{NpuPod, PodReference};
use crate::preflight::Objection;

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
                self.publish(pod_reference(&pod.reference), true, "DeviceFault", &fault.id, fault.describe());
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
            let name = pod.reference.to_string();
            for objection in objections.iter().filter(|objection| objection.pod.as_ref() == Some(&name)) {
                let text = format!("{} is faulty, and ClusterD isn't notified: {objection}", fault.subject);
                self.affected(&pod.reference, true, "FaultBlocked", &fault.id, text);
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
            let mut text = format!(
                "{} of node {} is registered at ClusterD as faulty; {then}",
                fault.subject, self.node
            );
            for warning in job.warnings.iter().filter(|_| fault.ends_ranks()) {
                // Writing into a String doesn't fail.
                let _ = write!(text, ". The checkpoint may be lost: {warning}");
            }
            self.affected(&job.pod, true, "FaultRelayed", &fault.id, text);
        }
    }

    /// The rank on a lost device was ended, or wasn't.
    pub fn rank_ended(
        &self,
        id: &str,
        pod: &PodReference,
        subject: Subject,
        result: &Result<i32, NoRankEnded>,
    ) {
        match result {
            Ok(pid) => {
                let text = format!(
                    "{subject} of node {} is lost: process {pid}, the rank on it, was ended, so that MindIO saves the \
                     dying checkpoint without waiting for ClusterD",
                    self.node
                );
                self.affected(pod, true, "RankEnded", id, text);
            }
            Err(error) => {
                let text = format!(
                    "{subject} of node {} is lost, and the rank on it wasn't ended, so that ClusterD orders the dump \
                     some 15 seconds later: {error}",
                    self.node
                );
                self.affected(pod, true, "RankNotEnded", id, text);
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
    pub fn outcome(&self, JobOutcome { id, subject, job, outcome, first_pod, .. }: &JobOutcome) {
        let (is_warning, reason, text) = match outcome {
            Outcome::Renamed(folder) => {
                let text =
                    format!("the job has saved its dying checkpoint, {folder}, and ClusterD reports nothing");
                (false, "DumpSucceeded", text)
            }
            Outcome::Unknown(why) => {
                let why = match why {
                    Unknown::NoStatus => {
                        "ClusterD reports no result of the dump, or the same as for an earlier one"
                    }
                    Unknown::PodGroupDeleted => {
                        "the job's PodGroup was deleted before ClusterD reported the result of the dump, and the ranks \
                         have disconnected from MindIO"
                    }
                    Unknown::TimedOut => "neither ClusterD nor an agent saw the end of the dump in its time",
                };
                let text = format!(
                    "{why}; check whether the newest folder of the checkpoint has its final name (saved) or begins with \
                     tmp (not saved), and the logs of MindIO's controller on rank 0"
                );
                (true, "DumpOutcomeUnknown", text)
            }
            Outcome::Status(status) => match status.as_str() {
                "dump-success" => {
                    (false, "DumpSucceeded", "the job has saved its dying checkpoint".to_owned())
                }
                "dump-failed" => {
                    (true, "DumpFailed", "the job couldn't save its dying checkpoint".to_owned())
                }
                // Of several strategies `exit` is the last.
                other if other.ends_with("-failed") || other == "exit-completed" => {
                    let text =
                        format!("ClusterD reports {other} (ProcessRecoverStatus), and nothing of a dump");
                    (true, "JobNotRecovered", text)
                }
                other => (false, "JobRecovered", format!("ClusterD reports {other} (ProcessRecoverStatus)")),
            },
        };
        let text = format!("after the fault of {subject} on node {}: {text}", self.node);
        self.node(is_warning, reason, id, format!("{}/{}: {text}", job.pod.namespace, job.job_name()));
        self.affected(&job.pod, is_warning, reason, id, text);
        if let Some(pod) = first_pod.as_ref().filter(|_| reason.starts_with("Dump")) {
            let text =
                "after the dump this Pod of rank 0 keeps running, with its devices, until the job is deleted";
            self.publish(pod_reference(pod), true, "DevicesKeptAfterDump", id, text.to_owned());
        }
    }

    fn node(&self, is_warning: bool, reason: &'static str, id: &str, message: String) {
        self.publish(node_reference(&self.node), is_warning, reason, id, message);
    }

    /// On the Pod and on its job.
    fn affected(
        &self,
        pod: &PodReference,
        is_warning: bool,
        reason: &'static str,
        id: &str,
        message: String,
    ) {
        self.publish(pod_reference(pod), is_warning, reason, id, message.clone());
        if let Some(job) = pod.job.as_ref().filter(|job| !job.uid.is_empty()) {
            let job = ObjectReference {
                api_version: Some(job.api_version.clone()),
                kind: Some(job.kind.clone()),
                namespace: Some(pod.namespace.clone()),
                name: Some(job.name.clone()),
                uid: Some(job.uid.clone()),
                ..ObjectReference::default()
            };
            self.publish(job, is_warning, reason, id, message);
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

fn pod_reference(pod: &PodReference) -> ObjectReference {
    container_reference(&pod.namespace, &pod.name, &pod.uid, &pod.container)
}
