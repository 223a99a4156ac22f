//! Keeps what is to be trusted in the `caBundle` of every webhook in a MutatingWebhookConfiguration.

use std::time::SystemTime;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use serde_json::Value;

use crate::anchor::AuthorityId;
use crate::api::{Attempt, ManageError};
use crate::bundle::{updated, view};
use crate::content::Trust;
use crate::event::Source;
use crate::rotation::BundleView;
use crate::secret::FIELD_MANAGER;

/// How often another writer may come in between before the round gives up until the next.
const ATTEMPTS: usize = 5;

/// Keeps the `caBundle` of one configuration.
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

    /// Name of the configuration.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sets what isn't as it should be.
    pub(crate) async fn ensure(&self, trust: &Trust, now: SystemTime) -> Result<Ensured, ManageError> {
        let mut answer = String::new();
        for _ in 0..ATTEMPTS {
            let configuration = self.read().await?;
            let (patch, names) = plan(&configuration, trust, now);
            let found = view(bundles(&configuration), trust);
            if names.is_empty() {
                return Ok(Ensured { found, set: None });
            }
            match self.apply(patch).await? {
                Applied::Ours(configuration) => {
                    let after = view(bundles(&configuration), trust);
                    return Ok(Ensured { found, set: Some((names, after)) });
                }
                Applied::Overtaken(status) => answer = status,
            }
        }
        Err(ManageError::Contended {
            source_of: Source::CaBundle,
            object: self.object.clone(),
            attempts: ATTEMPTS,
            answer,
        })
    }

    /// Whether the authority is in the `caBundle` of every webhook at this moment.
    pub(crate) async fn holds(&self, authority: &AuthorityId, trust: &Trust) -> Result<bool, ManageError> {
        let configuration = self.read().await?;
        Ok(view(bundles(&configuration), trust).everywhere.contains(authority))
    }

    async fn read(&self) -> Result<MutatingWebhookConfiguration, ManageError> {
        match self.api.get_opt(&self.name).await {
            Ok(Some(configuration)) => Ok(configuration),
            Ok(None) => Err(ManageError::NoConfiguration { object: self.object.clone() }),
            Err(error) => Err(self.attempt("get").failed(&error)),
        }
    }

    async fn apply(&self, patch: JsonPatch) -> Result<Applied, ManageError> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match self.api.patch(&self.name, &params, &Patch::Json::<()>(patch)).await {
            Ok(configuration) => Ok(Applied::Ours(Box::new(configuration))),
            // 422 is how the API server says that a `test` in a patch failed; 404 that the object is gone.
            Err(Error::Api(status))
                if status.is_conflict() || status.is_invalid() || status.is_not_found() =>
            {
                Ok(Applied::Overtaken(status.message.clone()))
            }
            Err(error) => Err(self.attempt("patch").failed(&error)),
        }
    }

    const fn attempt<'a>(&'a self, verb: &'static str) -> Attempt<'a> {
        Attempt { source_of: Source::CaBundle, verb, object: self.object.as_str() }
    }
}

/// What was found, and what was made of it.
pub(crate) struct Ensured {
    /// What was there.
    pub(crate) found: BundleView,
    /// The names of the webhooks that were not as they should be, and what is there now.
    pub(crate) set: Option<(Vec<String>, BundleView)>,
}

/// How a patch ended.
enum Applied {
    /// It was taken, and the configuration is this now.
    Ours(Box<MutatingWebhookConfiguration>),
    /// The configuration had changed since it was read; the API server's answer.
    Overtaken(String),
}

fn bundle(webhook: &MutatingWebhook) -> &[u8] {
    webhook.client_config.ca_bundle.as_ref().map_or(&[], |bundle| &bundle.0)
}

fn bundles(configuration: &MutatingWebhookConfiguration) -> impl Iterator<Item = &[u8]> {
    configuration.webhooks.iter().flatten().map(bundle)
}

/// A patch and not a replacement: fields that this build's types don't know must survive.
fn plan(
    configuration: &MutatingWebhookConfiguration,
    trust: &Trust,
    now: SystemTime,
) -> (JsonPatch, Vec<String>) {
    let version = configuration.metadata.resource_version.clone().unwrap_or_default();
    let mut operations = vec![PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: Value::String(version),
    })];
    let mut names = Vec::new();
    for (index, webhook) in configuration.webhooks.iter().flatten().enumerate() {
        let Some(text) = updated(bundle(webhook), trust, now) else {
            continue;
        };
        let Ok(value) = serde_json::to_value(ByteString(text.into_bytes())) else {
            continue;
        };
        // `add` replaces what is there, and is right as well where nothing is.
        operations.push(PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["webhooks", &index.to_string(), "clientConfig", "caBundle"]),
            value,
        }));
        names.push(webhook.name.clone());
    }
    (JsonPatch(operations), names)
}
