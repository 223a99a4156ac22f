//! Events on a job.
//!
//! kube's [`Recorder`](kube::runtime::events::Recorder) names Events by the time and needs `patch` to repeat one. These
//! are named by their content, so that several replicas create each only once, with no right but `create`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::metadata::ObjectMeta;

use crate::FIELD_MANAGER;
use crate::job::JobKind;

/// The API server's limit, in bytes.
const MAX_MESSAGE_LENGTH: usize = 1024;

/// The Event `reason` on a job, which `preceding` ones with the same content preceded.
pub(crate) fn event(kind: JobKind, job: &ObjectMeta, reason: &str, message: &str, preceding: i32) -> Event {
    let type_ = if reason == CREATED { "Normal" } else { "Warning" };
    let now = Time(Timestamp::now());
    let resource = kind.resource();
    Event {
        metadata: ObjectMeta {
            name: Some(name(job, reason, message, preceding)),
            namespace: job.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: job.namespace.clone(),
            name: job.name.clone(),
            uid: job.uid.clone(),
            ..ObjectReference::default()
        },
        type_: Some(type_.to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message[..message.floor_char_boundary(MAX_MESSAGE_LENGTH)].to_owned()),
        source: Some(EventSource { component: Some(FIELD_MANAGER.to_owned()), host: None }),
        reporting_component: Some("swansong.dev/reset-config".to_owned()),
        reporting_instance: Some(FIELD_MANAGER.to_owned()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(preceding.saturating_add(1)),
        ..Event::default()
    }
}

/// Reason of the Event about a new ConfigMap.
pub(crate) const CREATED: &str = "ResetConfigCreated";

/// Reason of the Event about a creation that the API server denies.
pub(crate) const NOT_CREATED: &str = "ResetConfigNotCreated";

/// Has the same length for all jobs, and is the same in each replica of a release.
fn name(job: &ObjectMeta, reason: &str, message: &str, preceding: i32) -> String {
    let mut hasher = DefaultHasher::new();
    (&job.uid, reason, message, preceding).hash(&mut hasher);
    format!("reset-config.{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_depends_on_the_content_only() {
        let job = |uid: &str| ObjectMeta {
            name: Some("j".repeat(253)),
            namespace: Some("ns".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        let event = |uid, message: &str, preceding| {
            super::event(JobKind::VolcanoJob, &job(uid), NOT_CREATED, message, preceding)
        };
        let name = |event: Event| event.metadata.name.expect("a name");
        let first = name(event("u", "m", 0));
        assert_eq!(first, name(event("u", "m", 0)));
        assert!(first.len() < 64, "{first}");
        for other in [event("u", "n", 0), event("v", "m", 0), event("u", "m", 1)] {
            assert_ne!(name(other), first);
        }
        let event = event("u", &"é".repeat(1000), 2);
        assert_eq!(event.message.as_ref().map(String::len), Some(MAX_MESSAGE_LENGTH));
        assert_eq!(event.involved_object.api_version.as_deref(), Some("batch.volcano.sh/v1alpha1"));
        assert_eq!((event.count, event.type_.as_deref()), (Some(3), Some("Warning")));
    }
}
