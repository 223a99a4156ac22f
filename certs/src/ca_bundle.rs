//! Sets the `caBundle` of every webhook in a MutatingWebhookConfiguration.

use std::time::SystemTime;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use serde_json::Value;

use crate::bundle::{observe, updated};
use crate::ca_certificate::CaId;
use crate::error::ManagerError;
use crate::event::Source;
use crate::rotation::ObservedBundle;
use crate::secret_data::TrustedCas;
use crate::secret_store::FIELD_MANAGER;

/// Conflicts with other writers that are retried within one round.
const ATTEMPTS: usize = 5;

/// The `caBundle` fields of one configuration.
pub(crate) struct CaBundle {
    api: Api<MutatingWebhookConfiguration>,
    name: String,
    object: String,
}

impl CaBundle {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self {
            api: Api::all(client),
            name: name.to_owned(),
            object: format!("MutatingWebhookConfiguration {name}"),
        }
    }

    /// Returns the name of the configuration.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Updates the bundles that differ from the desired content.
    pub(crate) async fn ensure(
        &self,
        cas: &TrustedCas,
        now: SystemTime,
    ) -> Result<EnsuredBundle, ManagerError> {
        let mut response = String::new();
        for _ in 0..ATTEMPTS {
            let configuration = self.read().await?;
            let (patch, webhooks) = patch_for(&configuration, cas, now);
            let found = observe(bundles(&configuration), cas);
            if webhooks.is_empty() {
                return Ok(EnsuredBundle { found, updated: None });
            }
            let params =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            match self.api.patch(&self.name, &params, &Patch::Json::<()>(patch)).await {
                Ok(configuration) => {
                    let after = observe(bundles(&configuration), cas);
                    return Ok(EnsuredBundle { found, updated: Some((webhooks, after)) });
                }
                // 422 means that the `test` operation failed, 404 that the object was deleted.
                Err(Error::Api(status))
                    if status.is_conflict() || status.is_invalid() || status.is_not_found() =>
                {
                    response.clone_from(&status.message);
                }
                Err(error) => return Err(self.failed("patch", &error)),
            }
        }
        Err(ManagerError::Conflict {
            source_of: Source::CaBundle,
            object: self.object.clone(),
            attempts: ATTEMPTS,
            response,
        })
    }

    /// Returns whether the CA is in the `caBundle` of every webhook now.
    pub(crate) async fn contains(&self, ca: &CaId, cas: &TrustedCas) -> Result<bool, ManagerError> {
        let configuration = self.read().await?;
        Ok(observe(bundles(&configuration), cas).in_all.contains(ca))
    }

    async fn read(&self) -> Result<MutatingWebhookConfiguration, ManagerError> {
        match self.api.get_opt(&self.name).await {
            Ok(Some(configuration)) => Ok(configuration),
            Ok(None) => Err(ManagerError::NoConfiguration { object: self.object.clone() }),
            Err(error) => Err(self.failed("get", &error)),
        }
    }

    fn failed(&self, verb: &'static str, error: &Error) -> ManagerError {
        ManagerError::api(Source::CaBundle, verb, &self.object, error)
    }
}

/// The bundles before and after an update.
pub(crate) struct EnsuredBundle {
    pub(crate) found: ObservedBundle,
    /// The names of the webhooks that were updated, and the bundles after that.
    pub(crate) updated: Option<(Vec<String>, ObservedBundle)>,
}

fn bundle(webhook: &MutatingWebhook) -> &[u8] {
    webhook.client_config.ca_bundle.as_ref().map_or(&[], |bundle| &bundle.0)
}

fn bundles(configuration: &MutatingWebhookConfiguration) -> impl Iterator<Item = &[u8]> {
    configuration.webhooks.iter().flatten().map(bundle)
}

/// A patch, since a replacement would drop fields that these types don't know.
fn patch_for(
    configuration: &MutatingWebhookConfiguration,
    cas: &TrustedCas,
    now: SystemTime,
) -> (JsonPatch, Vec<String>) {
    let version = configuration.metadata.resource_version.clone().unwrap_or_default();
    let mut operations = vec![PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: Value::String(version),
    })];
    let mut names = Vec::new();
    for (index, webhook) in configuration.webhooks.iter().flatten().enumerate() {
        let Some(text) = updated(bundle(webhook), cas, now) else {
            continue;
        };
        let Ok(value) = serde_json::to_value(ByteString(text.into_bytes())) else {
            continue;
        };
        // `add` also replaces an existing value.
        operations.push(PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["webhooks", &index.to_string(), "clientConfig", "caBundle"]),
            value,
        }));
        names.push(webhook.name.clone());
    }
    (JsonPatch(operations), names)
}
