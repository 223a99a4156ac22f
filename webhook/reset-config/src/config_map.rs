//! The ConfigMap to create, and the check of an existing one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::metadata::ObjectMeta;
use serde_json::json;
use swansong_clusterd::reset_config::{self, LABEL, NAME_PREFIX, State, Unusable};

use crate::job::Job;

/// Shows users which component created the ConfigMap.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "swansong");

/// The annotation of `kubectl create --save-config`. With it, a user's later `kubectl apply`, client-side or
/// server-side, takes over the data without a conflict with the controller's field manager.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The name of the job that a ConfigMap of this name belongs to.
pub fn job_name(config_map_name: &str) -> Option<&str> {
    config_map_name.strip_prefix(NAME_PREFIX).filter(|job| !job.is_empty())
}

/// The ConfigMap to create for a job. The garbage collector deletes it with the job.
pub fn new(job: &Job<'_>) -> ConfigMap {
    let labels = BTreeMap::from([LABEL, MANAGED_BY].map(|(key, value)| (key.to_owned(), value.to_owned())));
    let data = reset_config::initial();
    let last_applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": labels}, "data": data});
    let resource = job.kind.resource();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(reset_config::name_for(job.name())),
            namespace: job.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([(LAST_APPLIED.to_owned(), last_applied.to_string())])),
            owner_references: Some(vec![OwnerReference {
                api_version: resource.api_version,
                kind: resource.kind,
                name: job.name().to_owned(),
                uid: job.uid().to_owned(),
                // The job's own controller must not adopt it, and a foreground deletion of the job must not wait for it.
                controller: Some(false),
                block_owner_deletion: Some(false),
            }]),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    }
}

/// The state of a job's ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// ClusterD can use it.
    Usable,
    /// It doesn't exist.
    Missing,
    /// It is being deleted, or belongs to an earlier job of the same name, so that the garbage collector will delete it.
    Terminating,
    /// ClusterD can't use it.
    Unusable(Unusable),
}

pub fn check(config_map: Option<&ConfigMap>, job: &Job<'_>) -> Found {
    let Some(found) = config_map else { return Found::Missing };
    let owners = found.metadata.owner_references.as_deref().unwrap_or_default();
    let resource = job.kind.resource();
    let is_namesake = |owner: &OwnerReference| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        owner.kind == resource.kind && owner.name == job.name() && group == Some(&resource.group)
    };
    // The garbage collector keeps an object as long as one of its owners exists.
    let is_of_earlier_job =
        !owners.is_empty() && owners.iter().all(|owner| is_namesake(owner) && owner.uid != job.uid());
    if found.metadata.deletion_timestamp.is_some() || is_of_earlier_job {
        return Found::Terminating;
    }
    match reset_config::state(Some(found.data.as_ref().unwrap_or(&BTreeMap::new()))) {
        State::Usable => Found::Usable,
        State::Missing => Found::Missing,
        State::Unusable(why) => Found::Unusable(why),
    }
}

/// Whether the ConfigMap has the label by which the controller watches ConfigMaps.
pub fn is_labelled(config_map: &ConfigMap) -> bool {
    let labels = config_map.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(LABEL.0)).is_some_and(|value| value == LABEL.1)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::job::JobKind;

    fn metadata() -> ObjectMeta {
        let metadata = json!({"name": "llama", "namespace": "ns", "uid": "u-1"});
        serde_json::from_value(metadata).expect("metadata")
    }

    const fn job(metadata: &ObjectMeta) -> Job<'_> {
        Job { kind: JobKind::AscendJob, metadata, is_finished: false }
    }

    #[test]
    fn new_one_is_usable_and_owned_by_the_job() {
        let metadata = metadata();
        let new = new(&job(&metadata));
        let value = serde_json::to_value(&new).expect("JSON");
        assert_eq!(
            value["metadata"],
            json!({
                "name": "reset-config-llama", "namespace": "ns",
                "labels": {"reset": "true", "app.kubernetes.io/managed-by": "swansong"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration":
                    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"app.kubernetes.io/managed-by":"swansong","reset":"true"}},"data":{"checkCode":"","reset.json":"{\n    \"status\":\"initializing\"\n}\n"}}"#},
                "ownerReferences": [{
                    "apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "llama", "uid": "u-1",
                    "controller": false, "blockOwnerDeletion": false,
                }],
            })
        );
        assert_eq!(check(Some(&new), &job(&metadata)), Found::Usable);
        assert!(is_labelled(&new));
        assert_eq!(job_name("reset-config-llama"), Some("llama"));
        assert_eq!((job_name("reset-config-"), job_name("fault-config-llama")), (None, None));
    }

    #[test]
    fn existing_one_is_checked() {
        let owner = |uid: &str| json!({"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "name": "llama", "uid": uid});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "llama", "uid": "u-9"});
        let namesake =
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llama", "uid": "u-8"});
        let with = |metadata: Value, data: Value| -> ConfigMap {
            serde_json::from_value(json!({"metadata": metadata, "data": data})).expect("a ConfigMap")
        };
        let good = json!({"reset.json": "{}"});
        let of_job = self::metadata();
        for (what, metadata, data, expected) in [
            ("without label or owner", json!({}), good.clone(), Found::Usable),
            ("of this job", json!({"ownerReferences": [owner("u-1")]}), good.clone(), Found::Usable),
            (
                "an earlier job's",
                json!({"ownerReferences": [owner("u-0")]}),
                good.clone(),
                Found::Terminating,
            ),
            (
                "an earlier job's, unusable",
                json!({"ownerReferences": [owner("u-0")]}),
                json!({}),
                Found::Terminating,
            ),
            (
                "of both",
                json!({"ownerReferences": [owner("u-0"), owner("u-1")]}),
                good.clone(),
                Found::Usable,
            ),
            (
                "an earlier job's and another object's",
                json!({"ownerReferences": [owner("u-0"), other]}),
                good.clone(),
                Found::Usable,
            ),
            ("another object's", json!({"ownerReferences": [other]}), good.clone(), Found::Usable),
            (
                "of a job of the other kind",
                json!({"ownerReferences": [namesake]}),
                good.clone(),
                Found::Usable,
            ),
            ("being deleted", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), good, Found::Terminating),
            ("without data", json!({}), json!(null), Found::Unusable(Unusable::NoResetJson)),
            ("with an empty value", json!({}), json!({"reset.json": ""}), Found::Unusable(Unusable::Empty)),
        ] {
            let found = check(Some(&with(metadata, data)), &job(&of_job));
            assert_eq!(found, expected, "{what}");
        }
        assert_eq!(check(None, &job(&of_job)), Found::Missing);
    }
}
