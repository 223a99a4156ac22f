//! The Events that tell of a fault: on the Node, on the pods that it hits, and on their jobs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use swansong_clusterd::process_fault::ReportError;
use swansong_fault_model::Subject;
use swansong_runtime::events::{Event, EventSender, container_reference, node_reference};

use super::episode::Episode;
use super::pod::NpuPod;
use super::preflight::Objection;
use super::terms::JobNote;
use crate::readiness::truncate;

/// The annotation of Events that names the fault.
const FAULT: &str = "swansong.dev/fault-id";

/// Tells what happens to faults.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    node: String,
    events: EventSender,
}

impl Story {
    pub(crate) const fn new(node: String, events: EventSender) -> Self {
        Self { node, events }
    }

    /// A fault came.
    pub(crate) fn came(&self, id: &str, episode: &Episode, pods: &[NpuPod]) {
        self.node(true, "DeviceFault", id, format!("{} ({})", episode.describe(), episode.because));
        if episode.kills() {
            for pod in pods.iter().filter(|pod| pod.uses(episode.subject)) {
                self.tell(about_pod(pod), true, "DeviceFault", id, episode.describe());
            }
        }
    }

    /// A fault went.
    pub(crate) fn went(&self, id: &str, episode: &Episode) {
        self.node(false, "DeviceFaultOver", id, format!("over: {}", episode.describe()));
    }

    /// Something happened that nothing takes back.
    pub(crate) fn happened(&self, id: &str, episode: &Episode) {
        self.node(true, "DeviceNotice", id, episode.describe());
    }

    /// The device plugin has told it.
    pub(crate) fn carried(&self, id: &str, episode: &Episode) {
        let text = format!("the device plugin tells ClusterD of it: {}", episode.describe());
        self.node(false, "FaultCarried", id, text);
    }

    /// It isn't told.
    pub(crate) fn held_back(&self, id: &str, episode: &Episode, objections: &[Objection], pods: &[NpuPod]) {
        let all: Vec<String> = objections.iter().map(ToString::to_string).collect();
        let text = format!("{} isn't told to ClusterD: {}", episode.subject, all.join("; "));
        self.node(true, "FaultHeldBack", id, text);
        for pod in pods.iter().filter(|pod| pod.uses(episode.subject)) {
            let name = format!("{}/{}", pod.namespace, pod.name);
            let own = objections.iter().filter(|objection| objection.pod.as_ref() == Some(&name));
            for objection in own {
                let text = format!("{} is faulty and ClusterD isn't told: {objection}", episode.subject);
                self.tell(about_pod(pod), true, "FaultHeldBack", id, text.clone());
                if let Some(job) = about_job(&pod.namespace, pod.job.as_ref()) {
                    self.tell(job, true, "FaultHeldBack", id, text);
                }
            }
        }
    }

    /// ClusterD took it.
    pub(crate) fn relayed(&self, id: &str, episode: &Episode, jobs: &[JobNote], by: &str) {
        self.node(
            false,
            "FaultRelayed",
            id,
            format!("ClusterD has taken it by {by}: {}", episode.describe()),
        );
        for job in jobs {
            let then = if !episode.kills() {
                "it does about it what the job asks for"
            } else if job.dumps {
                "it ends the ranks there and orders a dump"
            } else {
                "it ends the ranks there, and the job asks for no dump"
            };
            let text =
                format!("ClusterD was told that {} of node {} is faulty; {then}", episode.subject, self.node);
            self.tell(about_noted(job), true, "FaultRelayed", id, text.clone());
            if let Some(about) = about_job(&job.namespace, Some(&job.job)) {
                self.tell(about, true, "FaultRelayed", id, text);
            }
        }
    }

    /// ClusterD was told directly which ranks of a job are lost.
    pub(crate) fn reported(&self, id: &str, job: &JobNote, result: &Result<(), ReportError>) {
        let ranks = &job.fast_ranks;
        let (warning, reason, text) = match result {
            Ok(()) => (
                false,
                "RanksReported",
                format!("ClusterD was told directly that the ranks {ranks:?} are lost"),
            ),
            Err(error) => (
                true,
                "RanksNotReported",
                format!(
                    "ClusterD couldn't be told directly that the ranks {ranks:?} are lost, so it orders the dump \
                     some ten seconds later: {error}"
                ),
            ),
        };
        self.tell(about_noted(job), warning, reason, id, text.clone());
        if let Some(about) = about_job(&job.namespace, Some(&job.job)) {
            self.tell(about, warning, reason, id, text);
        }
    }

    /// ClusterD took its end.
    pub(crate) fn recovered(&self, id: &str, episode: &Episode) {
        self.node(
            false,
            "FaultRecoveryRelayed",
            id,
            format!("ClusterD has taken the end of: {}", episode.describe()),
        );
    }

    /// It has done what it was for, and is taken back.
    pub(crate) fn recalled(&self, id: &str, episode: &Episode) {
        let text = format!("taken back, since the jobs that it hit have ended: {}", episode.describe());
        self.node(false, "FaultRecalled", id, text);
    }

    /// ClusterD won't ever take it.
    pub(crate) fn refused(&self, id: &str, why: &str) {
        self.node(true, "FaultRefused", id, why.to_owned());
    }

    /// What became of a job.
    pub(crate) fn outcome(&self, id: &str, subject: Subject, job: &JobNote, outcome: &str) {
        let (warning, reason, text) = match outcome {
            "dump-success" => (false, "DumpSucceeded", "the job has saved its dying checkpoint".to_owned()),
            "dump-failed" => (true, "DumpFailed", "the job couldn't save its dying checkpoint".to_owned()),
            GONE => (
                true,
                "DumpUnseen",
                "the job's pod ended before ClusterD said what became of the dump".to_owned(),
            ),
            UNKNOWN => (
                true,
                "DumpUnseen",
                "ClusterD doesn't say what became of the dump, or says what it had said before; look for the checkpoint"
                    .to_owned(),
            ),
            // Of several strategies `exit` is the last.
            other if other.ends_with("-failed") || other == "exit-completed" => {
                (true, "JobNotRecovered", format!("ClusterD says {other} (ProcessRecoverStatus), and nothing of a dump"))
            }
            other => (false, "JobRecovered", format!("ClusterD says {other} (ProcessRecoverStatus)")),
        };
        let text = format!("after the fault of {subject} on node {}: {text}", self.node);
        self.node(warning, reason, id, format!("{}/{}: {text}", job.namespace, job.job.name));
        if outcome != GONE {
            self.tell(about_noted(job), warning, reason, id, text.clone());
        }
        if let Some(about) = about_job(&job.namespace, Some(&job.job)) {
            self.tell(about, warning, reason, id, text);
        }
    }

    fn node(&self, warning: bool, reason: &'static str, id: &str, message: String) {
        self.tell(node_reference(&self.node), warning, reason, id, message);
    }

    fn tell(
        &self,
        regarding: ObjectReference,
        warning: bool,
        reason: &'static str,
        id: &str,
        mut message: String,
    ) {
        truncate(&mut message);
        let annotations = BTreeMap::from([(FAULT, id.to_owned())]);
        self.events.send(Event { regarding, warning, reason, message, annotations, is_state: false });
    }
}

/// The pod was gone before ClusterD said anything.
pub(crate) const GONE: &str = "gone";
/// ClusterD never said anything.
pub(crate) const UNKNOWN: &str = "unknown";

fn about_pod(pod: &NpuPod) -> ObjectReference {
    container_reference(&pod.namespace, &pod.name, &pod.uid, &pod.container)
}

fn about_noted(job: &JobNote) -> ObjectReference {
    container_reference(&job.namespace, &job.pod, &job.pod_uid, &job.container)
}

fn about_job(namespace: &str, job: Option<&super::pod::Owner>) -> Option<ObjectReference> {
    let job = job.filter(|job| !job.uid.is_empty())?;
    Some(ObjectReference {
        api_version: Some(job.api_version.clone()),
        kind: Some(job.kind.clone()),
        namespace: Some(namespace.to_owned()),
        name: Some(job.name.clone()),
        uid: Some(job.uid.clone()),
        ..ObjectReference::default()
    })
}
