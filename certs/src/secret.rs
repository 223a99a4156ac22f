//! The Secret in which the replicas share authority and leaf.
//!
//! The first writer wins: a Secret is created by POST, which fails when there is one, and replaced with the resource
//! version that was read, which fails when it was changed. The loser reads the winner's.

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{GetParams, ObjectMeta, PostParams};
use kube::client::Body;
use kube::core::{Request as ApiRequest, Status};
use kube::{Api, Client, Error};

use crate::anchor::AuthorityId;
use crate::api::{Attempt, ManageError};
use crate::clock::http_date;
use crate::content::{Request, SecretData};
use crate::event::Source;
use crate::ledger::Ledger;

const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT_CERTIFICATE: &str = "next-ca.crt";
const NEXT_KEY: &str = "next-ca.key";
const PREVIOUS: &str = "previous-ca.crt";

/// Annotation on the Secret by which an operator asks for a change: `ca` for a new authority, with overlap, or `leaf`
/// for a new leaf of the same authority. It is removed in the same write that takes what was asked for into use.
pub const ROTATE: &str = "swansong.dev/rotate";

/// Annotation on the Secret in which the replicas note whose leaf they serve, while the authority changes.
pub const SERVING: &str = "swansong.dev/serving";

/// Annotation on the Secret that names the last authorities that were given up. Where they turn up in a `caBundle`
/// again, they are removed.
pub const RETIRED: &str = "swansong.dev/retired";

/// Who wrote a field, as the API server's `managedFields` say it.
pub(crate) const FIELD_MANAGER: &str = "swansong";

/// A Secret as it was read. Without `Debug`, as it holds keys.
pub(crate) struct Stored {
    secret: Secret,
    pub(crate) data: SecretData,
}

/// An answer of the API server.
pub(crate) struct Reading {
    /// The Secret, if there is one.
    pub(crate) stored: Option<Stored>,
    /// What time it is there.
    pub(crate) server_time: Option<SystemTime>,
}

/// What came back: the body, or why not.
struct Answer {
    outcome: Result<Vec<u8>, Box<Status>>,
    server_time: Option<SystemTime>,
}

/// How a write ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Written {
    /// Ours is stored.
    Ours,
    /// Someone else wrote in between; the API server's answer.
    Overtaken(String),
}

/// Reads and writes the one Secret.
pub(crate) struct SecretStore {
    client: Client,
    api: Api<Secret>,
    name: String,
    object: String,
}

impl SecretStore {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            client,
            name: name.to_owned(),
            object: format!("Secret {namespace}/{name}"),
        }
    }

    /// What errors call the Secret.
    pub(crate) fn object(&self) -> &str {
        &self.object
    }

    /// Reads the Secret, and with it the API server's clock.
    pub(crate) async fn read(&self) -> Result<Reading, ManageError> {
        let request = ApiRequest::new(self.api.resource_url()).get(&self.name, &GetParams::default());
        let failed = |error: Error| self.attempt("get").failed(&error);
        let answer = self.send(request).await.map_err(failed)?;
        let secret: Secret = match answer.outcome {
            Ok(body) => serde_json::from_slice(&body).map_err(|_| self.attempt("get").not_understood())?,
            Err(status) if status.is_not_found() => {
                return Ok(Reading { stored: None, server_time: answer.server_time });
            }
            Err(status) => return Err(failed(Error::Api(status))),
        };
        if kept_by_cert_manager(&secret) {
            return Err(ManageError::Foreign { object: self.object.clone() });
        }
        let data = data_of(&secret);
        Ok(Reading { stored: Some(Stored { secret, data }), server_time: answer.server_time })
    }

    pub(crate) async fn write(
        &self,
        stored: Option<Stored>,
        data: &SecretData,
    ) -> Result<Written, ManageError> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let (verb, secret) = match stored {
            None => ("create", filled(self.blank(), data)),
            // Labels, other annotations, type and other keys stay; the resource version comes along.
            Some(stored) => ("update", filled(stored.secret, data)),
        };
        let failed = |error: Error| self.attempt(verb).failed(&error);
        let body = serde_json::to_vec(&secret).map_err(|error| failed(Error::SerdeError(error)))?;
        let request = ApiRequest::new(self.api.resource_url());
        let request = match verb {
            "create" => request.create(&params, body),
            _ => request.replace(&self.name, &params, body),
        };
        match self.send(request).await.map_err(failed)?.outcome {
            Ok(_) => Ok(Written::Ours),
            Err(status) if status.is_conflict() || status.is_already_exists() => {
                Ok(Written::Overtaken(status.message.clone()))
            }
            // Deleted between reading and replacing. On create, not found is the namespace, and an error.
            Err(status) if verb == "update" && status.is_not_found() => {
                Ok(Written::Overtaken(status.message.clone()))
            }
            Err(status) => Err(failed(Error::Api(status))),
        }
    }

    /// kube's own calls keep the answer's headers to themselves, and log the text of an answer that they can't parse,
    /// which here would be the keys.
    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Answer, Error> {
        let request = request.map_err(Error::BuildRequest)?;
        let response = self.client.send(request.map(Body::from)).await?;
        let server_time = response.headers().get("date").and_then(|date| http_date(date.as_bytes()));
        let code = response.status();
        let body = response.into_body().collect_bytes().await?.to_vec();
        let outcome = if code.is_success() {
            Ok(body)
        } else {
            let status: Option<Status> = serde_json::from_slice(&body).ok();
            let unsaid = || Status::failure("no reason given", "Unknown").with_code(code.as_u16());
            Err(Box::new(status.unwrap_or_else(unsaid)))
        };
        Ok(Answer { outcome, server_time })
    }

    fn blank(&self) -> Secret {
        let labels = [("app.kubernetes.io/name", "swansong"), ("app.kubernetes.io/managed-by", "swansong")];
        Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            // Not kubernetes.io/tls: the authority's key is in it too, and consumers of that type needn't expect it.
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        }
    }

    const fn attempt<'a>(&'a self, verb: &'static str) -> Attempt<'a> {
        Attempt { source_of: Source::Secret, verb, object: self.object.as_str() }
    }
}

fn data_of(secret: &Secret) -> SecretData {
    let part = |key: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        data.map(|bytes| bytes.0.clone()).unwrap_or_default()
    };
    let note = |key: &str| {
        let annotations = secret.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(key)).map(String::as_str)
    };
    SecretData {
        authority_certificate: part(AUTHORITY_CERTIFICATE),
        authority_key: part(AUTHORITY_KEY),
        certificate: part(CERTIFICATE),
        key: part(KEY),
        next_certificate: part(NEXT_CERTIFICATE),
        next_key: part(NEXT_KEY),
        previous: part(PREVIOUS),
        request: note(ROTATE).map(Request::parse),
        ledger: note(SERVING).map(Ledger::parse).unwrap_or_default(),
        retired: note(RETIRED)
            .map(|text| text.split_ascii_whitespace().filter_map(AuthorityId::parse).collect())
            .unwrap_or_default(),
    }
}

fn filled(mut secret: Secret, data: &SecretData) -> Secret {
    let parts = [
        (AUTHORITY_CERTIFICATE, &data.authority_certificate),
        (AUTHORITY_KEY, &data.authority_key),
        (CERTIFICATE, &data.certificate),
        (KEY, &data.key),
        (NEXT_CERTIFICATE, &data.next_certificate),
        (NEXT_KEY, &data.next_key),
        (PREVIOUS, &data.previous),
    ];
    let stored = secret.data.get_or_insert_with(BTreeMap::new);
    for (key, bytes) in parts {
        if bytes.is_empty() {
            stored.remove(key);
        } else {
            stored.insert(key.to_owned(), ByteString(bytes.clone()));
        }
    }
    let retired: Vec<String> = data.retired.iter().map(ToString::to_string).collect();
    let notes = [
        (ROTATE, data.request.as_ref().map(|request| request.as_str().to_owned()).unwrap_or_default()),
        (SERVING, data.ledger.to_string()),
        (RETIRED, retired.join(" ")),
    ];
    let annotations = secret.metadata.annotations.get_or_insert_with(BTreeMap::new);
    for (key, text) in notes {
        if text.is_empty() {
            annotations.remove(key);
        } else {
            annotations.insert(key.to_owned(), text);
        }
    }
    secret
}

/// cert-manager would write its own pair back, and the two would take turns for ever.
fn kept_by_cert_manager(secret: &Secret) -> bool {
    let annotations = secret.metadata.annotations.iter().flatten();
    annotations.into_iter().any(|(key, _)| key.starts_with("cert-manager.io/"))
}
