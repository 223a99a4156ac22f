//! Reads and writes the Secret that the replicas share.
//!
//! The first writer succeeds: POST fails if the Secret exists, and PUT fails if the resource version changed. The other
//! replicas then read what the first one stored.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{GetParams, ObjectMeta, PostParams};
use kube::client::Body;
use kube::core::{Request, Status};
use kube::{Api, Client, Error};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::annotations::{RETIRED, ROTATE, TRUSTED_UNTIL};
use crate::ca_certificate::{CaCertificate, CaId};
use crate::clock::{parse_http_date, parse_rfc3339, rfc3339};
use crate::error::ManagerError;
use crate::event::Source;
use crate::secret_data::{PreviousCa, RotationRequest, SecretData, StoredPair, to_pem};

const PREVIOUS_CAS: &str = "previous-ca.crt";

/// The field manager of all writes.
pub(crate) const FIELD_MANAGER: &str = "swansong";

/// A Secret as it was read. It contains keys, so it has no `Debug`.
pub(crate) struct StoredSecret {
    secret: Secret,
    pub(crate) data: SecretData,
}

/// The result of a read.
pub(crate) struct SecretRead {
    pub(crate) stored: Option<StoredSecret>,
    /// The API server's time.
    pub(crate) server_time: Option<SystemTime>,
}

/// The result of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WriteOutcome {
    Stored,
    /// Another writer was first; contains the API server's response.
    Conflict(String),
}

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

    /// Returns the name of the Secret in errors.
    pub(crate) fn object(&self) -> &str {
        &self.object
    }

    /// Reads the Secret and the API server's clock.
    pub(crate) async fn read(&self) -> Result<SecretRead, ManagerError> {
        let request = Request::new(self.api.resource_url()).get(&self.name, &GetParams::default());
        let (outcome, server_time) = self.send(request).await.map_err(|error| self.failed("get", &error))?;
        let secret: Secret = match outcome {
            Ok(body) => serde_json::from_slice(&body)
                .map_err(|_| ManagerError::unexpected_response(Source::Secret, "get", &self.object))?,
            Err(status) if status.is_not_found() => return Ok(SecretRead { stored: None, server_time }),
            Err(status) => return Err(self.failed("get", &Error::Api(status))),
        };
        if is_managed_by_cert_manager(&secret) {
            return Err(ManagerError::Foreign { object: self.object.clone() });
        }
        let data = decode(&secret);
        Ok(SecretRead { stored: Some(StoredSecret { secret, data }), server_time })
    }

    /// Creates the Secret, or replaces the one that was read.
    pub(crate) async fn write(
        &self,
        stored: Option<StoredSecret>,
        data: &SecretData,
    ) -> Result<WriteOutcome, ManagerError> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let (verb, secret) = match stored {
            None => ("create", encode(self.blank(), data)),
            // Labels, other annotations, type and other keys are preserved, as is the resource version.
            Some(stored) => ("update", encode(stored.secret, data)),
        };
        let failed = |error: Error| self.failed(verb, &error);
        let body = serde_json::to_vec(&secret).map_err(|error| failed(Error::SerdeError(error)))?;
        let request = Request::new(self.api.resource_url());
        let request = match verb {
            "create" => request.create(&params, body),
            _ => request.replace(&self.name, &params, body),
        };
        match self.send(request).await.map_err(failed)?.0 {
            Ok(_) => Ok(WriteOutcome::Stored),
            Err(status) if status.is_conflict() || status.is_already_exists() => {
                Ok(WriteOutcome::Conflict(status.message.clone()))
            }
            // Deleted between read and replace. On create, 404 is about the namespace, and an error.
            Err(status) if verb == "update" && status.is_not_found() => {
                Ok(WriteOutcome::Conflict(status.message.clone()))
            }
            Err(status) => Err(failed(Error::Api(status))),
        }
    }

    /// kube's own calls don't return the `Date` header, and they log a response that can't be parsed, with its keys.
    #[allow(clippy::type_complexity)]
    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(Result<Vec<u8>, Box<Status>>, Option<SystemTime>), Error> {
        let request = request.map_err(Error::BuildRequest)?;
        let response = self.client.send(request.map(Body::from)).await?;
        let server_time = response.headers().get("date").and_then(|date| parse_http_date(date.as_bytes()));
        let code = response.status();
        let body = response.into_body().collect_bytes().await?.to_vec();
        if code.is_success() {
            return Ok((Ok(body), server_time));
        }
        let unknown = || Status::failure("no reason given", "Unknown").with_code(code.as_u16());
        let status = serde_json::from_slice(&body).unwrap_or_else(|_| unknown());
        Ok((Err(Box::new(status)), server_time))
    }

    fn blank(&self) -> Secret {
        let labels = [("app.kubernetes.io/name", "swansong"), ("app.kubernetes.io/managed-by", "swansong")];
        Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            // Not kubernetes.io/tls: it contains the CA key as well, which consumers of that type don't expect.
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        }
    }

    fn failed(&self, verb: &'static str, error: &Error) -> ManagerError {
        ManagerError::api(Source::Secret, verb, &self.object, error)
    }
}

fn decode(secret: &Secret) -> SecretData {
    let part = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.map(|bytes| bytes.0.clone()).unwrap_or_default()
    };
    let pair = |name: &str| StoredPair {
        certificate: part(&format!("{name}.crt")),
        key: part(&format!("{name}.key")),
    };
    let annotation = |key: &str| {
        let annotations = secret.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(key)).map(String::as_str)
    };
    let words = |key: &str| annotation(key).unwrap_or_default().split_ascii_whitespace();
    let trusted_until: HashMap<CaId, SystemTime> = words(TRUSTED_UNTIL)
        .filter_map(|entry| {
            let (id, time) = entry.split_once('=')?;
            Some((CaId::parse(id)?, parse_rfc3339(time)?))
        })
        .collect();
    let previous = CertificateDer::pem_slice_iter(&part(PREVIOUS_CAS))
        .filter_map(|certificate| CaCertificate::from_der(&certificate.ok()?))
        .map(|certificate| PreviousCa {
            trusted_until: trusted_until.get(certificate.id()).copied(),
            certificate,
        })
        .collect();
    SecretData {
        ca: pair("ca"),
        leaf: pair("tls"),
        next_ca: pair("next-ca"),
        previous,
        request: annotation(ROTATE).map(RotationRequest::parse),
        retired: words(RETIRED).filter_map(CaId::parse).collect(),
    }
}

fn encode(mut secret: Secret, data: &SecretData) -> Secret {
    let previous: String = data.previous.iter().map(|ca| to_pem(ca.certificate.certificate())).collect();
    let parts = [
        ("ca.crt", &data.ca.certificate),
        ("ca.key", &data.ca.key),
        ("tls.crt", &data.leaf.certificate),
        ("tls.key", &data.leaf.key),
        ("next-ca.crt", &data.next_ca.certificate),
        ("next-ca.key", &data.next_ca.key),
        (PREVIOUS_CAS, &previous.into_bytes()),
    ];
    let stored = secret.data.get_or_insert_with(BTreeMap::new);
    for (key, bytes) in parts {
        if bytes.is_empty() {
            stored.remove(key);
        } else {
            stored.insert(key.to_owned(), ByteString(bytes.clone()));
        }
    }
    let until = |ca: &PreviousCa| {
        let time = ca.trusted_until.map(rfc3339)?;
        Some(format!("{}={time}", ca.certificate.id()))
    };
    let trusted_until: Vec<String> = data.previous.iter().filter_map(until).collect();
    let retired: Vec<String> = data.retired.iter().map(ToString::to_string).collect();
    let values = [
        (ROTATE, data.request.as_ref().map(RotationRequest::as_str).unwrap_or_default().to_owned()),
        (TRUSTED_UNTIL, trusted_until.join(" ")),
        (RETIRED, retired.join(" ")),
    ];
    let annotations = secret.metadata.annotations.get_or_insert_with(BTreeMap::new);
    for (key, value) in values {
        if value.is_empty() {
            annotations.remove(key);
        } else {
            annotations.insert(key.to_owned(), value);
        }
    }
    secret
}

/// cert-manager would restore its own pair, and the two would replace each other's without end.
fn is_managed_by_cert_manager(secret: &Secret) -> bool {
    let annotations = secret.metadata.annotations.iter().flatten();
    annotations.into_iter().any(|(key, _)| key.starts_with("cert-manager.io/"))
}
