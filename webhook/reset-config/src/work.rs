//! A look at one job, and what follows from it.

use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as CoreNamespace};
use serde::de::DeserializeOwned;
use swansong_api::annotations::INJECT;
use swansong_clusterd::reset_config::name_for;

use crate::agenda::{Key, Outcome};
use crate::api::{Api, Failed, Failure};
use crate::config_map::{self, Found, is_labelled, judge};
use crate::decide::{Because, Complaint, Decision, Namespace, decide};
use crate::job::Job;
use crate::news::About;

/// What a look has brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// Nothing was done, and nobody is to be told.
    Calm(Outcome),
    /// One was created; its version.
    Created(Option<String>),
    /// People are to be told.
    Complaint(Complaint),
    /// It may not be created.
    Refused(Failure),
}

/// Looks at a job: first at its ConfigMap, since mostly that is all there is to see; then at the job and its namespace
/// as they are now, since what a watch told of them is a little old.
pub(crate) async fn look(api: &Api, key: &Key, uid: &str, triggers: &[String]) -> Result<Looked, Failed> {
    let Key { namespace, name, kind } = key;
    let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let path = format!("{config_maps}/{}", name_for(name));
    let existing: Option<ConfigMap> = get(api, About::ConfigMap, &path).await?;
    let found = judge(existing.as_ref(), *kind, name, uid);
    if found == Found::Usable {
        let version = existing.filter(is_labelled).and_then(|found| found.metadata.resource_version);
        return Ok(Looked::Calm(Outcome::Sound(version)));
    }
    let path = format!("/apis/{}/namespaces/{namespace}/{}/{name}", kind.api_version(), kind.plural());
    let about = |failure| (About::Job, failure);
    let Some(job) = api.get(&path).await.map_err(about)? else { return Ok(Looked::Calm(Outcome::Gone)) };
    let job = Job::read(*kind, &job).map_err(|error| about(not_understood(&path, &error)))?;
    if job.uid != uid {
        return Ok(Looked::Calm(Outcome::Gone));
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    let core: Option<CoreNamespace> = get(api, About::Namespace, &path).await?;
    match decide(&job, triggers, namespace_of(core.as_ref()), found) {
        Decision::Nothing(because) => Ok(Looked::Calm(Outcome::Nothing(because))),
        Decision::Complain(complaint) => Ok(Looked::Complaint(complaint)),
        Decision::Create => create(api, &config_maps, &job, namespace).await,
    }
}

async fn create(api: &Api, path: &str, job: &Job<'_>, namespace: &str) -> Result<Looked, Failed> {
    let body = serde_json::to_vec(&config_map::new(job, namespace)).unwrap_or_default();
    match api.call(Method::POST, path, "application/json", body).await {
        Ok(created) => {
            let created: Option<ConfigMap> = serde_json::from_slice(&created).ok();
            Ok(Looked::Created(created.and_then(|created| created.metadata.resource_version)))
        }
        // Somebody else was first: another replica, or whoever applies the job's file. The next look judges it.
        Err(Failure::Refused { code: 409, .. }) => Ok(Looked::Calm(Outcome::Nothing(Because::Leaving))),
        Err(Failure::Refused { cause, .. }) if cause == "NamespaceTerminating" => {
            Ok(Looked::Calm(Outcome::Nothing(Because::NamespaceEnds)))
        }
        Err(Failure::Refused { code: 404, .. }) => Ok(Looked::Calm(Outcome::Gone)),
        Err(failure @ Failure::Refused { .. }) => Ok(Looked::Refused(failure)),
        Err(failure @ Failure::Unknown { .. }) => Err((About::ConfigMap, failure)),
    }
}

async fn get<T: DeserializeOwned>(api: &Api, about: About, path: &str) -> Result<Option<T>, Failed> {
    let answer = api.get(path).await.map_err(|failure| (about, failure))?;
    let read = |answer: Vec<u8>| serde_json::from_slice(&answer);
    answer.map(read).transpose().map_err(|error| (about, not_understood(path, &error)))
}

fn not_understood(path: &str, error: &serde_json::Error) -> Failure {
    Failure::Refused {
        what: format!("GET {path}"),
        code: 200,
        message: format!("the answer can't be understood: {error}"),
        cause: String::new(),
        retry_after: None,
    }
}

fn namespace_of(namespace: Option<&CoreNamespace>) -> Namespace {
    // It may have gone since.
    let Some(namespace) = namespace else { return Namespace { terminating: true, opted_out: false } };
    let labels = namespace.metadata.labels.as_ref();
    Namespace {
        terminating: namespace.metadata.deletion_timestamp.is_some(),
        opted_out: labels.and_then(|labels| labels.get(INJECT)).is_some_and(|value| value == "false"),
    }
}
