//! Reads and writes the Secret that the replicas share.
//!
//! The first writer succeeds: POST fails if the Secret exists, and PUT fails if the resource version changed. The other
//! replicas then read what the first one stored.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};
use kube::api::{GetParams, ObjectMeta, PostParams};
use kube::client::Body;
use kube::core::{Request, Status};
use kube::{Api, Client};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::certificate::{CaId, Certificate, PemPair, timestamp};
use crate::error::{Error, is_conflict};
use crate::secret_data::{PreviousCa, SecretData};

/// Annotation on the Secret by which a user requests a rotation: `ca` for a new CA with overlap, `leaf` for a new leaf
/// of the same CA, `revoke-ca` for a new CA at once. The write that fulfils the request removes it.
pub const ROTATE: &str = "swansong.dev/rotate";

/// Annotation on the Secret with the time at which each previous CA leaves the `caBundle`, as `ID=TIME` separated by
/// blanks.
pub const TRUSTED_UNTIL: &str = "swansong.dev/trusted-until";

/// Annotation on the Secret with the IDs of CAs that are no longer trusted. They are removed from a `caBundle` that
/// contains them again.
pub const RETIRED: &str = "swansong.dev/retired";

const PREVIOUS_CAS: &str = "previous-ca.crt";

/// The field manager of all writes.
pub(crate) const FIELD_MANAGER: &str = "swansong";

/// Conflicts with other writers that are retried within one round.
pub(crate) const ATTEMPTS: usize = 5;

/// A Secret as it was read. It contains keys, so it has no `Debug`.
pub(crate) struct StoredSecret {
    secret: Secret,
    pub(crate) data: SecretData,
}

/// The one Secret.
pub(crate) struct SecretStore {
    client: Client,
    api: Api<Secret>,
    name: String,
    /// The name of the Secret in errors.
    pub(crate) object: String,
    /// The API server's time in its last response.
    pub(crate) server_time: Option<SystemTime>,
}

impl SecretStore {
    pub(crate) fn new(client: Client, namespace: &str, name: &str) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        let object = format!("Secret {namespace}/{name}");
        Self { client, api, name: name.to_owned(), object, server_time: None }
    }

    pub(crate) async fn read(&mut self) -> Result<Option<StoredSecret>, Error> {
        let request = Request::new(self.api.resource_url()).get(&self.name, &GetParams::default());
        let secret: Secret = match self.send(request).await {
            Ok(secret) => secret,
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
            Err(error) => return Err(Error::api("get", &self.object, &error)),
        };
        // cert-manager would restore its own pair, and the two would replace each other's without end.
        if secret.metadata.annotations.iter().flatten().any(|(key, _)| key.starts_with("cert-manager.io/")) {
            return Err(Error::new(format!(
                "{} belongs to cert-manager, so it is not changed; mount it and give its files to the webhook, or name \
                 another Secret",
                self.object
            )));
        }
        let data = decode(&secret);
        Ok(Some(StoredSecret { secret, data }))
    }

    /// Creates the Secret, or replaces the one that was read. If another writer was first, returns the API server's
    /// response.
    pub(crate) async fn write(
        &mut self,
        stored: Option<StoredSecret>,
        data: &SecretData,
    ) -> Result<Result<(), String>, Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let (verb, secret) = match stored {
            None => ("create", encode(self.blank(), data)),
            // Labels, other annotations, type and other keys are preserved, as is the resource version.
            Some(stored) => ("update", encode(stored.secret, data)),
        };
        let body = serde_json::to_vec(&secret)
            .map_err(|error| Error::api(verb, &self.object, &kube::Error::SerdeError(error)))?;
        let request = Request::new(self.api.resource_url());
        let request = match verb {
            "create" => request.create(&params, body),
            _ => request.replace(&self.name, &params, body),
        };
        match self.send::<Secret>(request).await {
            Ok(_) => Ok(Ok(())),
            // 404 means deleted between read and replace. On create, it is about the namespace, and an error.
            Err(kube::Error::Api(status))
                if is_conflict(&status) && !(verb == "create" && status.is_not_found()) =>
            {
                Ok(Err(status.message))
            }
            Err(error) => Err(Error::api(verb, &self.object, &error)),
        }
    }

    /// kube's own calls don't return the `Date` header, and they log a response that can't be parsed, with its keys.
    async fn send<T: serde::de::DeserializeOwned>(
        &mut self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let response = self.client.send(request.map(Body::from)).await?;
        let date = response.headers().get("date").and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| rfc2822::parse(date).ok());
        self.server_time = date.map(|date| date.timestamp().into());
        let code = response.status();
        let body = response.into_body().collect_bytes().await?;
        if code.is_success() {
            return serde_json::from_slice(&body).map_err(kube::Error::SerdeError);
        }
        let unknown = |_| Status::failure("no reason given", "Unknown").with_code(code.as_u16());
        Err(kube::Error::Api(Box::new(serde_json::from_slice(&body).unwrap_or_else(unknown))))
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
}

fn decode(secret: &Secret) -> SecretData {
    let part = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.map(|bytes| bytes.0.clone()).unwrap_or_default()
    };
    let pair =
        |name: &str| PemPair { certificate: part(&format!("{name}.crt")), key: part(&format!("{name}.key")) };
    let annotation = |key: &str| secret.metadata.annotations.as_ref()?.get(key);
    let words = |key: &str| annotation(key).into_iter().flat_map(|text| text.split_ascii_whitespace());
    let trusted_until: HashMap<CaId, SystemTime> = words(TRUSTED_UNTIL)
        .filter_map(|entry| {
            let (id, time) = entry.split_once('=')?;
            Some((CaId::parse(id)?, time.parse::<Timestamp>().ok()?.into()))
        })
        .collect();
    let previous = CertificateDer::pem_slice_iter(&part(PREVIOUS_CAS))
        .filter_map(|certificate| Certificate::ca_from_der(&certificate.ok()?))
        .map(|certificate| PreviousCa {
            trusted_until: trusted_until.get(&certificate.id).copied(),
            certificate,
        })
        .collect();
    SecretData {
        ca: pair("ca"),
        leaf: pair("tls"),
        next_ca: pair("next-ca"),
        previous,
        request: annotation(ROTATE).and_then(|request| request.trim().parse().ok()),
        retired: words(RETIRED).filter_map(CaId::parse).collect(),
    }
}

fn encode(mut secret: Secret, data: &SecretData) -> Secret {
    let previous: String = data.previous.iter().map(|ca| ca.certificate.to_pem()).collect();
    let parts = [
        ("ca.crt", &data.ca.certificate),
        ("ca.key", &data.ca.key),
        ("tls.crt", &data.leaf.certificate),
        ("tls.key", &data.leaf.key),
        ("next-ca.crt", &data.next_ca.certificate),
        ("next-ca.key", &data.next_ca.key),
        (PREVIOUS_CAS, &previous.into_bytes()),
    ];
    let bytes = parts.map(|(key, part)| (key, (!part.is_empty()).then(|| ByteString(part.clone()))));
    set(secret.data.get_or_insert_default(), bytes);
    let until = |ca: &PreviousCa| Some(format!("{}={}", ca.certificate.id, timestamp(ca.trusted_until?)));
    let trusted_until: Vec<String> = data.previous.iter().filter_map(until).collect();
    let retired: Vec<String> = data.retired.iter().map(ToString::to_string).collect();
    let values = [
        (ROTATE, data.request.as_ref().map(ToString::to_string)),
        (TRUSTED_UNTIL, Some(trusted_until.join(" "))),
        (RETIRED, Some(retired.join(" "))),
    ];
    let values = values.map(|(key, value)| (key, value.filter(|value| !value.is_empty())));
    set(secret.metadata.annotations.get_or_insert_default(), values);
    secret
}

/// Sets these entries, and removes those without a value.
fn set<T>(map: &mut BTreeMap<String, T>, entries: impl IntoIterator<Item = (&'static str, Option<T>)>) {
    for (key, value) in entries {
        match value {
            Some(value) => map.insert(key.to_owned(), value),
            None => map.remove(key),
        };
    }
}
