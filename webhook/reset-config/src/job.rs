//! The kinds of job that MindCluster runs with a PodGroup, and what matters of one.

use std::borrow::Cow;
use std::fmt;

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use kube::core::metadata::ObjectMeta;
use serde::Deserialize;
use swansong_api::annotations::{INJECT, RECOVER_STRATEGY};

/// A kind of job whose annotations reach ClusterD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobKind {
    /// `mindxdl.gitee.com/v1` AscendJob, run by ascend-operator.
    AscendJob,
    /// `batch.volcano.sh/v1alpha1` Job, run by Volcano's job controller.
    VolcanoJob,
}

impl JobKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::AscendJob, Self::VolcanoJob];

    /// A name that tells it from Kubernetes' own Job; also a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AscendJob => "AscendJob",
            Self::VolcanoJob => "VolcanoJob",
        }
    }

    /// `kind` as manifests have it.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::AscendJob => "AscendJob",
            Self::VolcanoJob => "Job",
        }
    }

    /// `apiVersion` as manifests have it.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::AscendJob => "mindxdl.gitee.com/v1",
            Self::VolcanoJob => "batch.volcano.sh/v1alpha1",
        }
    }

    /// The name in paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::AscendJob => "ascendjobs",
            Self::VolcanoJob => "jobs",
        }
    }

    /// The kind as kube knows it.
    pub fn resource(self) -> ApiResource {
        let (group, version) = self.api_version().split_once('/').unwrap_or_default();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, self.kind()), self.plural())
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What matters of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job<'a> {
    /// Of which kind.
    pub kind: JobKind,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its UID, by which it differs from an earlier one of the same name.
    pub uid: Cow<'a, str>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Annotation `recover-strategy`.
    pub strategy: Option<Cow<'a, str>>,
    /// Whether it has the annotation `swansong.dev/inject: "false"`.
    pub opted_out: bool,
    /// Whether it has come to its end. Never, as far as metadata tells.
    pub finished: bool,
}

impl<'a> Job<'a> {
    /// What metadata tells of it.
    pub fn of_metadata(kind: JobKind, metadata: &'a ObjectMeta) -> Self {
        let text = |text: &'a Option<String>| Cow::Borrowed(text.as_deref().unwrap_or_default());
        let annotation = |key| metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        Self {
            kind,
            name: text(&metadata.name),
            uid: text(&metadata.uid),
            deleting: metadata.deletion_timestamp.is_some(),
            strategy: annotation(RECOVER_STRATEGY).map(Cow::Borrowed),
            opted_out: is_false(annotation(INJECT)),
            finished: false,
        }
    }

    /// Reads a whole job, of which little is kept.
    ///
    /// # Errors
    ///
    /// When it isn't JSON, or what matters is of another type.
    pub fn read(kind: JobKind, json: &'a [u8]) -> serde_json::Result<Self> {
        let View { metadata, status } = serde_json::from_slice(json)?;
        let annotations = metadata.annotations.unwrap_or_default();
        let status = status.unwrap_or_default();
        Ok(Self {
            kind,
            name: metadata.name,
            uid: metadata.uid,
            deleting: metadata.deletion_timestamp.is_some(),
            strategy: annotations.strategy,
            opted_out: is_false(annotations.inject.as_deref()),
            finished: match kind {
                JobKind::AscendJob => status.conditions.iter().flatten().any(Condition::ends),
                JobKind::VolcanoJob => status.state.is_some_and(|state| state.ends()),
            },
        })
    }
}

/// As the webhook reads `swansong.dev/inject`.
fn is_false(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.trim() == "false")
}

#[derive(Deserialize)]
struct View<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    annotations: Option<Annotations<'a>>,
}

#[derive(Default, Deserialize)]
struct Annotations<'a> {
    #[serde(borrow, rename = "recover-strategy")]
    strategy: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "swansong.dev/inject")]
    inject: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    /// Of an AscendJob, as of every job of Kubeflow's training operators.
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
    /// Of a Volcano Job.
    #[serde(borrow)]
    state: Option<State<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

impl Condition<'_> {
    /// kubeflow/common `pkg/util/status.go` `IsSucceeded`, `IsFailed`.
    fn ends(&self) -> bool {
        matches!(&*self.kind, "Succeeded" | "Failed") && self.status == "True"
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State<'a> {
    #[serde(borrow)]
    phase: Cow<'a, str>,
}

impl State<'_> {
    /// Volcano `pkg/controllers/job/state/factory.go`: phases of its finished state. An aborted job may be resumed.
    fn ends(&self) -> bool {
        matches!(&*self.phase, "Completed" | "Failed" | "Terminated")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: JobKind, json: &serde_json::Value) -> Job<'static> {
        let text = json.to_string();
        let Job { name, uid, deleting, strategy, opted_out, finished, .. } =
            Job::read(kind, text.as_bytes()).expect("a job");
        Job {
            kind,
            name: Cow::Owned(name.into_owned()),
            uid: Cow::Owned(uid.into_owned()),
            deleting,
            strategy: strategy.map(|strategy| Cow::Owned(strategy.into_owned())),
            opted_out,
            finished,
        }
    }

    #[test]
    fn metadata_and_the_whole_tell_the_same() {
        for metadata in [
            json!({"name": "j", "uid": "u"}),
            json!({"name": "j", "uid": "u", "annotations": null}),
            json!({"name": "j", "uid": "u", "annotations": {"recover-strategy": "retry,dump", "x": "\"y\""}}),
            json!({"name": "j", "uid": "u", "annotations": {"recover-strategy": "a\tb", "swansong.dev/inject": " false"}}),
            json!({"name": "j", "uid": "u", "annotations": {"swansong.dev/inject": "true"}}),
            json!({"name": "j", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ] {
            let whole = json!({"kind": "Job", "metadata": metadata, "spec": {"tasks": [{"name": "x"}]}});
            let meta: ObjectMeta = serde_json::from_value(metadata).expect("metadata");
            let kind = JobKind::VolcanoJob;
            assert_eq!(read(kind, &whole), Job::of_metadata(kind, &meta), "{whole}");
        }
    }

    #[test]
    fn the_end_is_told_by_each_kind_in_its_way() {
        let condition = |kind: &str, status: &str| json!({"conditions": [{"type": "Created", "status": "True"}, {"type": kind, "status": status}]});
        let state = |phase: &str| json!({"state": {"phase": phase}, "conditions": [{"status": "Failed"}]});
        for (kind, status, finished) in [
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
            let whole = json!({"metadata": {"name": "j", "uid": "u"}, "status": status});
            assert_eq!(read(kind, &whole).finished, finished, "{kind} {status}");
        }
    }

    #[test]
    fn kinds_are_those_of_their_definitions() {
        for (kind, path) in [
            (JobKind::AscendJob, "mindxdl.gitee.com/v1, AscendJob, ascendjobs"),
            (JobKind::VolcanoJob, "batch.volcano.sh/v1alpha1, Job, jobs"),
        ] {
            let resource = kind.resource();
            assert_eq!(format!("{}, {}, {}", resource.api_version, resource.kind, resource.plural), path);
        }
    }
}
