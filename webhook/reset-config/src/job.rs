//! The kinds of job that MindCluster runs with a PodGroup.

use kube::api::{ApiResource, DynamicObject, Object, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::core::metadata::ObjectMeta;
use serde::Deserialize;
use serde::de::IgnoredAny;
use strum::{Display, IntoStaticStr};
use swansong_api::annotations::{INJECT, RECOVER_STRATEGY};

/// The metadata of a job, as watched.
pub type JobMetadata = PartialObjectMeta<DynamicObject>;

/// A job as read before a decision. Its spec is skipped.
pub type JobObject = Object<Option<IgnoredAny>, JobStatus>;

/// A kind of job whose annotations reach ClusterD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, IntoStaticStr)]
pub enum JobKind {
    /// `mindxdl.gitee.com/v1` AscendJob, run by ascend-operator.
    AscendJob,
    /// `batch.volcano.sh/v1alpha1` Job, run by Volcano's job controller.
    VolcanoJob,
}

impl JobKind {
    /// `kind` in manifests.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::AscendJob => "AscendJob",
            Self::VolcanoJob => "Job",
        }
    }

    /// `apiVersion` in manifests.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::AscendJob => "mindxdl.gitee.com/v1",
            Self::VolcanoJob => "batch.volcano.sh/v1alpha1",
        }
    }

    /// The resource for [`kube::Api`].
    pub fn resource(self) -> ApiResource {
        let plural = match self {
            Self::AscendJob => "ascendjobs",
            Self::VolcanoJob => "jobs",
        };
        let (group, version) = self.api_version().split_once('/').unwrap_or_default();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, self.kind()), plural)
    }
}

/// The part of a job that decides about its ConfigMap.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    pub kind: JobKind,
    pub metadata: &'a ObjectMeta,
    /// Whether it has succeeded or failed for good. Metadata alone doesn't say so.
    pub is_finished: bool,
}

impl Job<'_> {
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The job's UID, which differs from that of an earlier job of the same name.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The annotation `recover-strategy`.
    pub fn strategy(&self) -> Option<&str> {
        self.annotation(RECOVER_STRATEGY)
    }

    /// Whether the job is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether the job has the annotation `swansong.dev/inject: "false"`.
    pub fn is_opted_out(&self) -> bool {
        self.annotation(INJECT).is_some_and(|value| value.trim() == "false")
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// Removes everything from a job's metadata that [`Job`] doesn't use, since the controller caches it.
pub fn prune(job: &mut JobMetadata) {
    let metadata = std::mem::take(&mut job.metadata);
    let annotations = metadata.annotations.map(|mut annotations| {
        annotations.retain(|key, _| [RECOVER_STRATEGY, INJECT].contains(&key.as_str()));
        annotations
    });
    job.types = None;
    job.metadata = ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        deletion_timestamp: metadata.deletion_timestamp,
        annotations,
        ..ObjectMeta::default()
    };
}

/// The status of a job of either kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct JobStatus {
    /// Conditions of an AscendJob, which has those of Kubeflow's training operators.
    conditions: Option<Vec<Condition>>,
    /// State of a Volcano Job.
    state: Option<State>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct State {
    phase: String,
}

impl JobStatus {
    /// Whether a job of this kind has succeeded or failed for good.
    ///
    /// Sources: kubeflow/common `pkg/util/status.go` `IsSucceeded`, `IsFailed`; Volcano
    /// `pkg/controllers/job/state/factory.go`, phases of its finished state. An aborted Volcano Job may be resumed.
    pub fn is_finished(&self, kind: JobKind) -> bool {
        match kind {
            JobKind::AscendJob => self.conditions.iter().flatten().any(|condition| {
                matches!(&*condition.r#type, "Succeeded" | "Failed") && condition.status == "True"
            }),
            JobKind::VolcanoJob => {
                let phase = self.state.as_ref().map(|state| state.phase.as_str());
                matches!(phase, Some("Completed" | "Failed" | "Terminated"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pruned_metadata_decides_as_the_whole_does() {
        for metadata in [
            json!({"name": "j", "uid": "u"}),
            json!({"name": "j", "uid": "u", "annotations": null, "labels": {"a": "b"}}),
            json!({"name": "j", "uid": "u", "annotations": {"recover-strategy": "retry,dump", "x": "\"y\""}}),
            json!({"name": "j", "uid": "u", "annotations": {"swansong.dev/inject": " false"}}),
            json!({"name": "j", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}),
        ] {
            let whole: JobMetadata = serde_json::from_value(json!({"metadata": metadata})).expect("metadata");
            let mut pruned = whole.clone();
            prune(&mut pruned);
            let properties = |object: &JobMetadata| {
                let job = Job { kind: JobKind::AscendJob, metadata: &object.metadata, is_finished: false };
                let strategy = job.strategy().map(str::to_owned);
                (
                    job.name().to_owned(),
                    job.uid().to_owned(),
                    strategy,
                    job.is_opted_out(),
                    job.is_terminating(),
                )
            };
            assert_eq!(properties(&pruned), properties(&whole), "{metadata}");
            assert!(pruned.metadata.labels.is_none() && pruned.metadata.finalizers.is_none());
        }
    }

    #[test]
    fn each_kind_reports_its_end_in_its_own_status() {
        let condition = |kind: &str, status: &str| json!({"conditions": [{"type": "Created", "status": "True"}, {"type": kind, "status": status}]});
        let state = |phase: &str| json!({"state": {"phase": phase}, "conditions": [{"status": "Failed"}]});
        for (kind, status, is_finished) in [
            (JobKind::AscendJob, json!(null), false),
            (JobKind::AscendJob, json!({}), false),
            (JobKind::AscendJob, json!({"conditions": null}), false),
            (JobKind::AscendJob, condition("Running", "True"), false),
            (JobKind::AscendJob, condition("Restarting", "True"), false),
            (JobKind::AscendJob, condition("Failed", "False"), false),
            (JobKind::AscendJob, condition("Failed", "True"), true),
            (JobKind::AscendJob, condition("Succeeded", "True"), true),
            (JobKind::VolcanoJob, json!(null), false),
            (JobKind::VolcanoJob, state("Running"), false),
            (JobKind::VolcanoJob, state("Aborted"), false),
            (JobKind::VolcanoJob, state("Completing"), false),
            (JobKind::VolcanoJob, state("Completed"), true),
            (JobKind::VolcanoJob, state("Failed"), true),
            (JobKind::VolcanoJob, state("Terminated"), true),
        ] {
            for spec in [json!({"tasks": [{"name": "x"}]}), Value::Null] {
                let job = json!({"apiVersion": "v", "kind": "k", "metadata": {"name": "j"}, "spec": spec, "status": status});
                let job: JobObject = serde_json::from_value(job).expect("a job");
                let status = job.status.unwrap_or_default();
                assert_eq!(status.is_finished(kind), is_finished, "{kind} {status:?}");
            }
        }
    }

    #[test]
    fn resources_are_those_of_the_definitions() {
        for (kind, expected) in [
            (JobKind::AscendJob, "mindxdl.gitee.com/v1, AscendJob, ascendjobs"),
            (JobKind::VolcanoJob, "batch.volcano.sh/v1alpha1, Job, jobs"),
        ] {
            let resource = kind.resource();
            assert_eq!(format!("{}, {}, {}", resource.api_version, resource.kind, resource.plural), expected);
        }
    }
}
