//! Sets the `caBundle` of every webhook in a MutatingWebhookConfiguration.

use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::bundle::{observe, updated};
use crate::certificate::CaId;
use crate::error::{Error, is_conflict};
use crate::rotation::ObservedBundle;
use crate::secret_data::TrustedCas;
use crate::secret_store::{ATTEMPTS, FIELD_MANAGER};

/// The `caBundle` fields of one configuration.
pub(crate) struct CaBundle {
    api: Api<MutatingWebhookConfiguration>,
    /// Name of the configuration.
    pub(crate) name: String,
    object: String,
}

impl CaBundle {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        let object = format!("MutatingWebhookConfiguration {name}");
        Self { api: Api::all(client), name: name.to_owned(), object }
    }

    /// Updates the bundles that differ from the desired content. Returns the bundles as found and, after an update, the
    /// names of the updated webhooks and the bundles that they have now.
    pub(crate) async fn ensure(
        &self,
        cas: &TrustedCas,
        now: SystemTime,
    ) -> Result<(ObservedBundle, Option<(Vec<String>, ObservedBundle)>), Error> {
        let mut response = String::new();
        for _ in 0..ATTEMPTS {
            let configuration = self.read().await?;
            let found = observe(bundles(&configuration), cas);
            let (operations, names) = operations(&configuration, cas, now);
            if names.is_empty() {
                return Ok((found, None));
            }
            let patch = serde_json::from_value(Value::Array(operations))
                .map_err(|error| Error::api("patch", &self.object, &kube::Error::SerdeError(error)))?;
            let params =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            match self.api.patch(&self.name, &params, &Patch::Json::<()>(patch)).await {
                Ok(configuration) => {
                    let after = observe(bundles(&configuration), cas);
                    return Ok((found, Some((names, after))));
                }
                // 422 means that the `test` operation failed.
                Err(kube::Error::Api(status)) if is_conflict(&status) || status.is_invalid() => {
                    response = status.message;
                }
                Err(error) => return Err(Error::api("patch", &self.object, &error)),
            }
        }
        Err(Error::conflict(&self.object, ATTEMPTS, &response))
    }

    /// Returns whether the CA is in the `caBundle` of every webhook now.
    pub(crate) async fn contains(&self, ca: &CaId, cas: &TrustedCas) -> Result<bool, Error> {
        let configuration = self.read().await?;
        Ok(observe(bundles(&configuration), cas).in_all.contains(ca))
    }

    async fn read(&self) -> Result<MutatingWebhookConfiguration, Error> {
        let found =
            self.api.get_opt(&self.name).await.map_err(|error| Error::api("get", &self.object, &error))?;
        found.ok_or_else(|| {
            let problem =
                "doesn't exist, so the API server calls no webhook; apply the manifests, or correct the name";
            Error::new(format!("{} {problem}", self.object))
        })
    }
}

fn bundle(webhook: &MutatingWebhook) -> &[u8] {
    webhook.client_config.ca_bundle.as_ref().map_or(&[], |bundle| &bundle.0)
}

fn bundles(configuration: &MutatingWebhookConfiguration) -> impl Iterator<Item = &[u8]> {
    configuration.webhooks.iter().flatten().map(bundle)
}

/// The operations of a JSON patch, since a replacement would drop fields that these types don't know, and the names of
/// the webhooks that it updates.
fn operations(
    configuration: &MutatingWebhookConfiguration,
    cas: &TrustedCas,
    now: SystemTime,
) -> (Vec<Value>, Vec<String>) {
    let version = &configuration.metadata.resource_version;
    let mut operations = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
    let mut names = Vec::new();
    for (index, webhook) in configuration.webhooks.iter().flatten().enumerate() {
        if let Some(text) = updated(bundle(webhook), cas, now) {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            // `add` also replaces an existing value.
            operations.push(json!({"op": "add", "path": path, "value": ByteString(text.into_bytes())}));
            names.push(webhook.name.clone());
        }
    }
    (operations, names)
}
