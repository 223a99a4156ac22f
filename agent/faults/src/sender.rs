//! The transports to ClusterD, in the order in which they are tried: the gateway, ClusterD's gRPC server, a ConfigMap.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::json;
use swansong_clusterd::{PublicFault, SendError, Transport, config_map};
use swansong_clusterd_client::GrpcClient;
use swansong_fault_model::BatchError;
use swansong_gateway::client::GatewayClient;
use swansong_runtime::kube::error_message;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::clock::unix_millis;

/// How long the gateway may ask for time before ClusterD is asked directly. A gateway that restarts, or that can't reach
/// ClusterD temporarily, does so for less.
const GATEWAY_GRACE: Duration = Duration::from_mins(1);

/// How long the API server may take for a ConfigMap.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The transport that carried a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr, strum::VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Route {
    /// The cluster's gateway.
    Gateway,
    /// ClusterD's gRPC server.
    Grpc,
    /// A ConfigMap that ClusterD reads.
    ConfigMap,
}

/// All configured transports.
#[derive(Debug)]
pub struct Transports {
    /// The cluster's gateway.
    pub gateway: Option<Gateway>,
    pub grpc: GrpcClient,
    /// The ConfigMap for a ClusterD that doesn't answer.
    pub config_map: Option<ConfigMapTransport>,
}

impl Transports {
    /// Sends a batch by the first transport that answers. A refusal is an answer.
    ///
    /// A transport that doesn't answer may still have delivered the batch: ClusterD ignores ids that it has.
    pub async fn send(&self, batch: &[PublicFault]) -> (Route, Result<(), SendError>) {
        if let Some(gateway) = &self.gateway {
            match gateway.send(batch).await {
                (Err(error), true) => warn!(%error, "the gateway fails, sending to ClusterD directly"),
                (answer, _) => return (Route::Gateway, answer),
            }
        }
        let answer = self.grpc.send(batch).await;
        let Err(SendError::Unavailable(why)) = &answer else { return (Route::Grpc, answer) };
        let Some(config_map) = &self.config_map else { return (Route::Grpc, answer) };
        warn!(why, "ClusterD doesn't answer, writing the ConfigMap that it reads");
        match config_map.send(batch).await {
            Ok(()) => (Route::ConfigMap, Ok(())),
            Err(error) => {
                warn!(%error, "the ConfigMap can't be written either");
                (Route::Grpc, answer)
            }
        }
    }
}

/// What an answer means to the reconciler.
pub(crate) fn batch_error(error: &SendError) -> BatchError {
    let text = error.to_string();
    match error {
        SendError::TooMany(_) => BatchError::Limited(text),
        SendError::Invalid(_) | SendError::InvalidBatch(_) => BatchError::Invalid(text),
        SendError::Unavailable(_) => BatchError::Unavailable { why: text, retry_after: None },
        SendError::RetryAfter { after, .. } => {
            BatchError::Unavailable { why: text, retry_after: Some(*after) }
        }
        SendError::UnexpectedResponse { .. } => BatchError::Unexpected(text),
    }
}

/// The cluster's gateway.
#[derive(Debug)]
pub struct Gateway {
    client: GatewayClient,
    deferral: Mutex<Deferral>,
}

/// Since when the gateway has only asked for time.
#[derive(Debug, Default)]
struct Deferral(Option<Instant>);

impl Deferral {
    /// Whether ClusterD is asked directly after this answer.
    fn is_bypassed(&mut self, answer: &Result<(), SendError>, now: Instant) -> bool {
        match answer {
            Err(SendError::Unavailable(_)) => true,
            Err(SendError::RetryAfter { .. }) => {
                now.duration_since(*self.0.get_or_insert(now)) >= GATEWAY_GRACE
            }
            _ => {
                self.0 = None;
                false
            }
        }
    }
}

impl Gateway {
    /// Sends by `client`.
    pub fn new(client: GatewayClient) -> Self {
        Self { client, deferral: Mutex::default() }
    }

    /// The answer, and whether ClusterD has to be asked directly.
    async fn send(&self, batch: &[PublicFault]) -> (Result<(), SendError>, bool) {
        let answer = self.client.send(batch).await;
        let mut deferral = self.deferral.lock().unwrap_or_else(PoisonError::into_inner);
        let is_bypassed = deferral.is_bypassed(&answer, Instant::now());
        (answer, is_bypassed)
    }
}

/// This node's ConfigMap for a ClusterD that doesn't answer.
pub struct ConfigMapTransport {
    maps: Api<ConfigMap>,
    name: String,
}

impl fmt::Debug for ConfigMapTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigMapTransport").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ConfigMapTransport {
    /// The ConfigMap `swansong-faults.<node>` in `namespace`.
    pub fn new(client: Client, namespace: &str, node: &str) -> Self {
        Self { maps: Api::namespaced(client, namespace), name: format!("swansong-faults.{node}") }
    }

    async fn write(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        let unavailable = |error: kube::Error| SendError::Unavailable(error_message(&error));
        let existing = self.maps.get_opt(&self.name).await.map_err(unavailable)?;
        let mut exists = existing.is_some();
        let content =
            existing.map(|map| map.data.unwrap_or_default().remove(config_map::KEY).unwrap_or_default());
        let contents = config_map::contents(content.as_deref(), batch, unix_millis())
            .map_err(|error| SendError::Invalid(error.to_string()))?;
        let (label, value) = config_map::LABEL;
        for content in contents {
            if exists {
                let patch = json!({
                    "metadata": {"labels": {label: value}},
                    "data": {config_map::KEY: content},
                });
                let patch = Patch::Merge(patch);
                self.maps.patch(&self.name, &PatchParams::default(), &patch).await.map_err(unavailable)?;
            } else {
                let labels = [(label, value), ("app.kubernetes.io/name", "swansong")];
                let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        labels: Some(BTreeMap::from(labels)),
                        ..ObjectMeta::default()
                    },
                    data: Some(BTreeMap::from([(config_map::KEY.to_owned(), content)])),
                    ..ConfigMap::default()
                };
                self.maps.create(&PostParams::default(), &map).await.map_err(unavailable)?;
                exists = true;
            }
        }
        Ok(())
    }
}

impl Transport for ConfigMapTransport {
    async fn send(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        let late = |_| SendError::Unavailable(format!("the API server didn't answer within {TIMEOUT:?}"));
        timeout(TIMEOUT, self.write(batch)).await.map_err(late)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_that_only_asks_for_time_is_bypassed_after_a_minute() {
        let (mut deferral, start) = (Deferral::default(), Instant::now());
        let later = Err(SendError::RetryAfter { reason: "busy".to_owned(), after: Duration::from_secs(2) });
        let unavailable = Err(SendError::Unavailable("refused".to_owned()));
        let too_many = Err(SendError::TooMany("limiter".to_owned()));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(deferral.is_bypassed(&unavailable, at(0)));
        assert!(!deferral.is_bypassed(&later, at(10)));
        assert!(!deferral.is_bypassed(&later, at(69)));
        assert!(deferral.is_bypassed(&later, at(70)));
        assert!(deferral.is_bypassed(&unavailable, at(71)));
        assert!(deferral.is_bypassed(&later, at(72)), "until it answers");
        assert!(!deferral.is_bypassed(&too_many, at(73)), "ClusterD's own answer");
        assert!(!deferral.is_bypassed(&later, at(74)));
        assert!(!deferral.is_bypassed(&Ok(()), at(200)));
        assert!(!deferral.is_bypassed(&later, at(201)));
    }
}
