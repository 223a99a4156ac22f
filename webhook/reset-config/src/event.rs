//! Events on a job. Whichever replica tells it, an Event has the same name, so that it is there once, and none is ever
//! changed: what is told again after a while is an Event of its own, whose count says how often it was told.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use http::Method;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::core::metadata::ObjectMeta;

use crate::agenda::Key;
use crate::api::{Api, Failure};

/// Who tells it.
pub(crate) const COMPONENT: &str = "swansong-job-guard";

/// The most that the API server takes.
const LONGEST_MESSAGE: usize = 1024;

/// Something to tell about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Telling<'a> {
    pub(crate) about: &'a Key,
    pub(crate) uid: &'a str,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: &'a str,
}

impl Telling<'_> {
    /// Short whatever the job's name is, and the same in each replica of a release.
    fn name(&self, before: i32) -> String {
        let mut hasher = DefaultHasher::new();
        (self.about, self.uid, self.reason, self.message, before).hash(&mut hasher);
        format!("reset-config.{:016x}", hasher.finish())
    }

    fn message(&self) -> &str {
        let end = self.message.floor_char_boundary(LONGEST_MESSAGE);
        &self.message[..end]
    }

    fn event(&self, now: Timestamp, before: i32) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(self.name(before)),
                namespace: Some(self.about.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(self.about.kind.api_version().to_owned()),
                kind: Some(self.about.kind.kind().to_owned()),
                namespace: Some(self.about.namespace.clone()),
                name: Some(self.about.name.clone()),
                uid: Some(self.uid.to_owned()),
                ..ObjectReference::default()
            },
            type_: Some(if self.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message().to_owned()),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
            reporting_component: Some("swansong.dev/job-guard".to_owned()),
            reporting_instance: Some(COMPONENT.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(before.saturating_add(1)),
            ..Event::default()
        }
    }

    /// Tells it; `before` is how often it was told before.
    pub(crate) async fn tell(&self, api: &Api, before: i32) -> Result<(), Failure> {
        let events = format!("/api/v1/namespaces/{}/events", self.about.namespace);
        let event = serde_json::to_vec(&self.event(Timestamp::now(), before)).unwrap_or_default();
        match api.call(Method::POST, &events, "application/json", event).await {
            // Another replica has told it; or its namespace ends, and nobody is there to read it.
            Err(Failure::Refused { code: 409, .. }) => Ok(()),
            Err(Failure::Refused { cause, .. }) if cause == "NamespaceTerminating" => Ok(()),
            answer => answer.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobKind;

    #[test]
    fn each_replica_gives_the_same_name_and_each_text_its_own() {
        let about = Key { namespace: "ns".to_owned(), name: "j".repeat(253), kind: JobKind::VolcanoJob };
        let telling = |uid, message| Telling { about: &about, uid, warning: true, reason: "R", message };
        let name = telling("u", "m").name(0);
        assert_eq!(name, telling("u", "m").name(0));
        let others = [telling("u", "n").name(0), telling("v", "m").name(0), telling("u", "m").name(1)];
        assert!(!others.contains(&name));
        assert!(name.len() < 64, "{name}");
        let long = "é".repeat(1000);
        assert_eq!(telling("u", &long).message().len(), LONGEST_MESSAGE);
        let event = telling("u", "m").event(Timestamp::UNIX_EPOCH, 2);
        assert_eq!(event.involved_object.api_version.as_deref(), Some("batch.volcano.sh/v1alpha1"));
        assert_eq!((event.count, event.type_.as_deref()), (Some(3), Some("Warning")));
    }
}
