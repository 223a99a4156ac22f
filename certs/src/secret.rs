//! The Secret in which the replicas share authority and leaf.
//!
//! The first writer wins: a Secret is created by POST, which fails when there is one, and replaced with the resource
//! version that was read, which fails when it was changed. The loser reads the winner's.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Error};

use crate::api::{Attempt, ManageError};
use crate::decide::SecretData;
use crate::event::Source;

const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Who wrote a field, as the API server's `managedFields` say it.
pub(crate) const FIELD_MANAGER: &str = "swansong";

/// A Secret as it was read. Without `Debug`, as it holds keys.
pub(crate) struct Stored {
    secret: Secret,
    pub(crate) data: SecretData,
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
    api: Api<Secret>,
    name: String,
    object: String,
}

impl SecretStore {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            object: format!("Secret {namespace}/{name}"),
        }
    }

    /// What errors call the Secret.
    pub(crate) fn object(&self) -> &str {
        &self.object
    }

    pub(crate) async fn read(&self) -> Result<Option<Stored>, ManageError> {
        let found = self.api.get_opt(&self.name).await.map_err(|error| self.attempt("get").failed(&error))?;
        let Some(secret) = found else { return Ok(None) };
        if kept_by_cert_manager(&secret) {
            return Err(ManageError::Foreign { object: self.object.clone() });
        }
        let data = data_of(&secret);
        Ok(Some(Stored { secret, data }))
    }

    pub(crate) async fn write(
        &self,
        stored: Option<Stored>,
        data: &SecretData,
    ) -> Result<Written, ManageError> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let (verb, outcome) = match stored {
            None => ("create", self.api.create(&params, &filled(self.blank(), data)).await),
            Some(stored) => {
                // Labels, annotations, type and other keys stay; the resource version comes along.
                ("update", self.api.replace(&self.name, &params, &filled(stored.secret, data)).await)
            }
        };
        match outcome {
            Ok(_) => Ok(Written::Ours),
            Err(Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(Written::Overtaken(status.message.clone()))
            }
            // Deleted between reading and replacing. On create, not found is the namespace, and an error.
            Err(Error::Api(status)) if verb == "update" && status.is_not_found() => {
                Ok(Written::Overtaken(status.message.clone()))
            }
            Err(error) => Err(self.attempt(verb).failed(&error)),
        }
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
    SecretData {
        authority_certificate: part(AUTHORITY_CERTIFICATE),
        authority_key: part(AUTHORITY_KEY),
        certificate: part(CERTIFICATE),
        key: part(KEY),
    }
}

fn filled(mut secret: Secret, data: &SecretData) -> Secret {
    let parts = [
        (AUTHORITY_CERTIFICATE, &data.authority_certificate),
        (AUTHORITY_KEY, &data.authority_key),
        (CERTIFICATE, &data.certificate),
        (KEY, &data.key),
    ];
    let stored = secret.data.get_or_insert_with(BTreeMap::new);
    for (key, bytes) in parts {
        stored.insert(key.to_owned(), ByteString(bytes.clone()));
    }
    secret
}

/// cert-manager would write its own pair back, and the two would take turns for ever.
fn kept_by_cert_manager(secret: &Secret) -> bool {
    let annotations = secret.metadata.annotations.iter().flatten();
    annotations.into_iter().any(|(key, _)| key.starts_with("cert-manager.io/"))
}
