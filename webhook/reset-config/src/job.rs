//! The kinds of job that MindCluster runs with a PodGroup.

use kube::api::{ApiResource, DynamicObject, Object, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::core::metadata::ObjectMeta;
use serde::de::IgnoredAny;
use serde_json::Value;
use strum::{Display, IntoStaticStr};
use swansong_api::annotations::{INJECT, RECOVER_STRATEGY};

/// The metadata of a job, as watched.
pub type JobMetadata = PartialObjectMeta<DynamicObject>;

/// A job as read before a decision. Its spec is skipped.
pub type JobObject = Object<Option<IgnoredAny>, Value>;

/// A kind of job whose annotations reach ClusterD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, IntoStaticStr)]
pub enum JobKind {
    /// `mindxdl.gitee.com/v1` AscendJob, run by ascend-operator.
    AscendJob,
    /// `batch.volcano.sh/v1alpha1` Job, run by Volcano's job controller.
    VolcanoJob,
}

impl JobKind {
    /// The resource for [`kube::Api`], with `apiVersion` and `kind` in manifests.
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::AscendJob => ("mindxdl.gitee.com", "v1", "AscendJob", "ascendjobs"),
            Self::VolcanoJob => ("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Whether a job with this status has succeeded or failed permanently.
    ///
    /// Sources: kubeflow/common `pkg/util/status.go` `IsSucceeded`, `IsFailed`; Volcano
    /// `pkg/controllers/job/state/factory.go`, phases of its finished state. An aborted Volcano Job may be resumed.
    pub fn is_finished(self, status: &Value) -> bool {
        match self {
            Self::AscendJob => status["conditions"].as_array().into_iter().flatten().any(|condition| {
                matches!(condition["type"].as_str(), Some("Succeeded" | "Failed"))
                    && condition["status"] == "True"
            }),
            Self::VolcanoJob => {
                matches!(status["state"]["phase"].as_str(), Some("Completed" | "Failed" | "Terminated"))
            }
        }
    }
}

/// The part of a job that decides about its ConfigMap.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    pub kind: JobKind,
    pub metadata: &'a ObjectMeta,
    /// Whether it has succeeded or failed permanently. Metadata doesn't contain that.
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

    /// An annotation of the job.
    pub fn annotation(&self, key: &str) -> Option<&str> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
                let annotations =
                    [RECOVER_STRATEGY, INJECT].map(|key| job.annotation(key).map(str::to_owned));
                let is_terminating = object.metadata.deletion_timestamp.is_some();
                (job.name().to_owned(), job.uid().to_owned(), annotations, is_terminating)
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
                assert_eq!(kind.is_finished(&status), is_finished, "{kind} {status:?}");
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
