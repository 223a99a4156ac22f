//! Puts the authority into the `caBundle` of every webhook in a MutatingWebhookConfiguration.

use std::time::SystemTime;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use serde_json::Value;

use crate::api::{Attempt, ManageError};
use crate::authority::Authority;
use crate::bundle::updated;
use crate::event::Source;
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

    /// Sets what lacks the authority, and returns the names of the webhooks that did.
    pub(crate) async fn ensure(
        &self,
        authority: &Authority,
        now: SystemTime,
    ) -> Result<Vec<String>, ManageError> {
        let mut answer = String::new();
        for _ in 0..ATTEMPTS {
            let configuration = self.read().await?;
            let (patch, names) = plan(&configuration, authority, now);
            if names.is_empty() {
                return Ok(names);
            }
            match self.apply(patch).await? {
                None => return Ok(names),
                Some(refusal) => answer = refusal,
            }
        }
        Err(ManageError::Contended {
            source_of: Source::CaBundle,
            object: self.object.clone(),
            attempts: ATTEMPTS,
            answer,
        })
    }

    async fn read(&self) -> Result<MutatingWebhookConfiguration, ManageError> {
        match self.api.get_opt(&self.name).await {
            Ok(Some(configuration)) => Ok(configuration),
            Ok(None) => Err(ManageError::NoConfiguration { object: self.object.clone() }),
            Err(error) => Err(self.attempt("get").failed(&error)),
        }
    }

    /// Nothing when the patch was taken; the answer when the configuration changed since it was read.
    async fn apply(&self, patch: JsonPatch) -> Result<Option<String>, ManageError> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match self.api.patch(&self.name, &params, &Patch::Json::<()>(patch)).await {
            Ok(_) => Ok(None),
            // 422 is how the API server says that a `test` in a patch failed; 404 that the object is gone.
            Err(Error::Api(status))
                if status.is_conflict() || status.is_invalid() || status.is_not_found() =>
            {
                Ok(Some(status.message.clone()))
            }
            Err(error) => Err(self.attempt("patch").failed(&error)),
        }
    }

    const fn attempt<'a>(&'a self, verb: &'static str) -> Attempt<'a> {
        Attempt { source_of: Source::CaBundle, verb, object: self.object.as_str() }
    }
}

/// A patch and not a replacement: fields that this build's types don't know must survive.
fn plan(
    configuration: &MutatingWebhookConfiguration,
    authority: &Authority,
    now: SystemTime,
) -> (JsonPatch, Vec<String>) {
    let version = configuration.metadata.resource_version.clone().unwrap_or_default();
    let mut operations = vec![PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
        value: Value::String(version),
    })];
    let mut names = Vec::new();
    for (index, webhook) in configuration.webhooks.iter().flatten().enumerate() {
        let bundle = webhook.client_config.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
        let Some(text) = updated(bundle, authority, now) else {
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
