//! The ConfigMap as it is created, and how an existing one is judged.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::metadata::ObjectMeta;
use swansong_clusterd::reset_config::{self, LABEL, NAME_PREFIX, State, Unusable};

use crate::job::{Job, JobKind};

/// Noted on what the guard makes, so that people see whose it is.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "swansong");

/// The name of the job whose ConfigMap has this name.
pub fn job_of(name: &str) -> Option<&str> {
    name.strip_prefix(NAME_PREFIX).filter(|job| !job.is_empty())
}

/// What is created for a job. It goes with the job: the garbage collector sees to that.
pub fn new(job: &Job<'_>, namespace: &str) -> ConfigMap {
    let label = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(reset_config::name_for(&job.name)),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([label(LABEL), label(MANAGED_BY)])),
            owner_references: Some(vec![OwnerReference {
                api_version: job.kind.api_version().to_owned(),
                kind: job.kind.kind().to_owned(),
                name: job.name.clone().into_owned(),
                uid: job.uid.clone().into_owned(),
                // Not its controller: whoever manages the job by its kind isn't to take it for something of his. And
                // a deletion of the job in the foreground needn't wait for it.
                controller: Some(false),
                block_owner_deletion: Some(false),
            }]),
            ..ObjectMeta::default()
        },
        data: Some(reset_config::initial()),
        ..ConfigMap::default()
    }
}

/// What an existing one, or none, is to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// ClusterD can use it.
    Usable,
    /// There is none.
    Missing,
    /// It is on its way out: being deleted, or an earlier job's of the same name, which the garbage collector removes.
    Leaving,
    /// ClusterD can't use it.
    Unusable(Unusable),
}

/// Judges what there is for the job with this UID.
pub fn judge(found: Option<&ConfigMap>, kind: JobKind, job: &str, uid: &str) -> Found {
    let Some(found) = found else { return Found::Missing };
    let owners = found.metadata.owner_references.as_deref().unwrap_or_default();
    let same =
        |owner: &&OwnerReference| owner.kind == kind.kind() && owner.name == job && of_group(owner, kind);
    let mut namesakes = owners.iter().filter(same).peekable();
    // One owner that lives is enough to stay.
    let only_namesakes = owners.iter().all(|owner| same(&owner));
    let earlier = namesakes.peek().is_some() && only_namesakes && namesakes.all(|owner| owner.uid != uid);
    if found.metadata.deletion_timestamp.is_some() || earlier {
        return Found::Leaving;
    }
    match reset_config::state(Some(found.data.as_ref().unwrap_or(&BTreeMap::new()))) {
        State::Usable => Found::Usable,
        State::Missing => Found::Missing,
        State::Unusable(why) => Found::Unusable(why),
    }
}

/// Whether the watch of labelled ConfigMaps tells of this one.
pub fn is_labelled(found: &ConfigMap) -> bool {
    let labels = found.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(LABEL.0)).is_some_and(|value| value == LABEL.1)
}

fn of_group(owner: &OwnerReference, kind: JobKind) -> bool {
    let group = |api_version: &str| api_version.split_once('/').map(|(group, _)| group.to_owned());
    group(&owner.api_version) == group(kind.api_version())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::{Value, json};

    use super::*;

    fn job() -> Job<'static> {
        Job {
            kind: JobKind::AscendJob,
            name: Cow::Borrowed("llama"),
            uid: Cow::Borrowed("u-1"),
            deleting: false,
            strategy: Some(Cow::Borrowed("dump")),
            opted_out: false,
            finished: false,
        }
    }

    #[test]
    fn a_new_one_is_usable_and_belongs_to_the_job_without_hindering_it() {
        let new = new(&job(), "ns");
        let value = serde_json::to_value(&new).expect("JSON");
        assert_eq!(
            value["metadata"],
            json!({
                "name": "reset-config-llama", "namespace": "ns",
                "labels": {"reset": "true", "app.kubernetes.io/managed-by": "swansong"},
                "ownerReferences": [{
                    "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "llama", "uid": "u-1",
                    "controller": false, "blockOwnerDeletion": false,
                }],
            })
        );
        assert_eq!(judge(Some(&new), JobKind::AscendJob, "llama", "u-1"), Found::Usable);
        assert!(is_labelled(&new));
        assert_eq!(job_of("reset-config-llama"), Some("llama"));
        assert_eq!((job_of("reset-config-"), job_of("fault-config-llama")), (None, None));
    }

    #[test]
    fn what_is_there_is_judged() {
        let owner = |uid: &str| json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "llama", "uid": uid});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "llama", "uid": "u-9"});
        let namesake =
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llama", "uid": "u-8"});
        let with = |metadata: Value, data: Value| -> ConfigMap {
            serde_json::from_value(json!({"metadata": metadata, "data": data})).expect("a ConfigMap")
        };
        let good = json!({"reset.json": "{}"});
        for (what, metadata, data, expected) in [
            ("by hand, without label or owner", json!({}), good.clone(), Found::Usable),
            ("ours", json!({"ownerReferences": [owner("u-1")]}), good.clone(), Found::Usable),
            ("an earlier job's", json!({"ownerReferences": [owner("u-0")]}), good.clone(), Found::Leaving),
            (
                "an earlier job's and broken",
                json!({"ownerReferences": [owner("u-0")]}),
                json!({}),
                Found::Leaving,
            ),
            (
                "of both",
                json!({"ownerReferences": [owner("u-0"), owner("u-1")]}),
                good.clone(),
                Found::Usable,
            ),
            (
                "an earlier job's and another's",
                json!({"ownerReferences": [owner("u-0"), other]}),
                good.clone(),
                Found::Usable,
            ),
            ("another's", json!({"ownerReferences": [other]}), good.clone(), Found::Usable),
            (
                "that of a job of the other kind",
                json!({"ownerReferences": [namesake]}),
                good.clone(),
                Found::Usable,
            ),
            ("on its way out", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), good, Found::Leaving),
            ("empty by mistake", json!({}), json!(null), Found::Unusable(Unusable::NoResetJson)),
            ("with nothing in it", json!({}), json!({"reset.json": ""}), Found::Unusable(Unusable::Empty)),
        ] {
            let found = judge(Some(&with(metadata, data)), JobKind::AscendJob, "llama", "u-1");
            assert_eq!(found, expected, "{what}");
        }
        assert_eq!(judge(None, JobKind::AscendJob, "llama", "u-1"), Found::Missing);
    }
}
