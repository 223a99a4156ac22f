//! The ways to ClusterD, in the order in which they are tried: the cluster's relay, ClusterD itself, a ConfigMap.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use swansong_clusterd::{PublicFault, SendError, Transport, config_map};
use swansong_clusterd_client::GrpcClient;
use swansong_gateway::client::GatewayClient;
use tokio::time::Instant;
use tracing::warn;

use crate::api::{ApiError, ApiServer};
use crate::fault::millis;

/// A way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// The relay of the cluster.
    Relay,
    /// ClusterD's gRPC server.
    Grpc,
    /// A ConfigMap that ClusterD reads.
    ConfigMap,
}

impl Route {
    pub(crate) const ALL: [Self; 3] = [Self::Relay, Self::Grpc, Self::ConfigMap];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Grpc => "grpc",
            Self::ConfigMap => "config_map",
        }
    }
}

/// How long the relay may put an agent off before ClusterD is asked past it. A relay that restarts, or that can't reach
/// ClusterD for a moment, does so for less.
const PATIENCE: Duration = Duration::from_mins(1);

/// The cluster's relay.
#[derive(Debug)]
pub(crate) struct ByRelay {
    sink: GatewayClient,
    /// Since when it has only been asking for time.
    put_off: Mutex<PutOff>,
}

#[derive(Debug, Default)]
struct PutOff(Option<Instant>);

impl PutOff {
    /// Whether ClusterD is to be asked past somebody who answers so.
    fn goes_past(&mut self, answer: &Result<(), SendError>, now: Instant) -> bool {
        match answer {
            Err(SendError::Unavailable(_)) => true,
            Err(SendError::RetryAfter { .. }) => now.duration_since(*self.0.get_or_insert(now)) >= PATIENCE,
            _ => {
                self.0 = None;
                false
            }
        }
    }
}

impl ByRelay {
    pub(crate) fn new(sink: GatewayClient) -> Self {
        Self { sink, put_off: Mutex::default() }
    }

    /// The relay's answer, and whether that isn't the last word.
    async fn send(&self, batch: &[PublicFault]) -> (Result<(), SendError>, bool) {
        let answer = self.sink.send(batch).await;
        let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_past = put_off.goes_past(&answer, Instant::now());
        (answer, goes_past)
    }
}

/// All ways that are open.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) relay: Option<ByRelay>,
    pub(crate) grpc: GrpcClient,
    pub(crate) config_map: Option<ConfigMapSink>,
}

impl Routes {
    /// Sends a batch the first way on which somebody answers. Which way it was, and what the answer is.
    ///
    /// A refusal is an answer: it isn't carried to somebody else; to be put off is one for a minute. A way on which nobody answers may have carried the
    /// batch all the same; ClusterD knows faults by their ids and passes over those that it has.
    pub(crate) async fn send(&self, batch: &[PublicFault]) -> (Route, Result<(), SendError>) {
        if let Some(relay) = &self.relay {
            match relay.send(batch).await {
                (Err(error), true) => warn!(%error, "the relay doesn't help; asking ClusterD itself"),
                (answer, _) => return (Route::Relay, answer),
            }
        }
        let answer = self.grpc.send(batch).await;
        let Err(SendError::Unavailable(why)) = &answer else { return (Route::Grpc, answer) };
        let Some(config_map) = &self.config_map else { return (Route::Grpc, answer) };
        warn!(why, "ClusterD doesn't answer; writing the ConfigMap that it reads");
        match config_map.send(batch).await {
            Ok(()) => (Route::ConfigMap, Ok(())),
            Err(error) => {
                warn!(%error, "the ConfigMap can't be written either");
                (Route::Grpc, answer)
            }
        }
    }
}

/// A ConfigMap of this node's own, by which ClusterD is told where it doesn't answer.
#[derive(Debug)]
pub(crate) struct ConfigMapSink {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) namespace: String,
    pub(crate) node: String,
}

#[derive(Deserialize)]
struct Existing {
    data: Option<BTreeMap<String, String>>,
}

impl ConfigMapSink {
    /// The ConfigMap's name. A node's name is one of an object, so that nothing has to be replaced.
    fn name(&self) -> String {
        format!("swansong-faults.{}", self.node)
    }

    async fn read(&self) -> Result<Option<String>, ApiError> {
        let path = format!("/api/v1/namespaces/{}/configmaps/{}", self.namespace, self.name());
        match self.api.call(Method::GET, &path, "", Vec::new()).await {
            Ok(answer) => {
                let existing: Existing = serde_json::from_slice(&answer)
                    .map_err(|error| ApiError::NotUnderstood { path, problem: error.to_string() })?;
                Ok(Some(existing.data.unwrap_or_default().remove(config_map::KEY).unwrap_or_default()))
            }
            Err(error) if error.code() == Some(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, exists: bool, content: &str) -> Result<(), ApiError> {
        let (label, value) = config_map::LABEL;
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name(), "labels": {label: value, "app.kubernetes.io/name": "swansong"}},
            "data": {config_map::KEY: content},
        });
        let maps = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        let body = object.to_string().into_bytes();
        if exists {
            let path = format!("{maps}/{}", self.name());
            self.api.call(Method::PATCH, &path, "application/merge-patch+json", body).await?;
        } else {
            self.api.call(Method::POST, &maps, "application/json", body).await?;
        }
        Ok(())
    }
}

impl Transport for ConfigMapSink {
    async fn send(&self, batch: &[PublicFault]) -> Result<(), SendError> {
        let unavailable = |error: ApiError| SendError::Unavailable(error.to_string());
        let existing = self.read().await.map_err(unavailable)?;
        let contents = config_map::contents(existing.as_deref(), batch, millis())
            .map_err(|error| SendError::Invalid(error.to_string()))?;
        let mut exists = existing.is_some();
        for content in contents {
            self.write(exists, &content).await.map_err(unavailable)?;
            exists = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_only_asks_for_time_is_gone_past_after_a_minute() {
        let (mut put_off, start) = (PutOff::default(), Instant::now());
        let later = Err(SendError::RetryAfter { reason: "busy".to_owned(), after: Duration::from_secs(2) });
        let unavailable = Err(SendError::Unavailable("refused".to_owned()));
        let too_many = Err(SendError::TooMany("limiter".to_owned()));
        let at = |seconds| start + Duration::from_secs(seconds);
        // One that isn't there says nothing about one that puts off.
        assert!(put_off.goes_past(&unavailable, at(0)));
        assert!(!put_off.goes_past(&later, at(10)));
        assert!(!put_off.goes_past(&later, at(69)));
        assert!(put_off.goes_past(&later, at(70)));
        assert!(put_off.goes_past(&unavailable, at(71)));
        assert!(put_off.goes_past(&later, at(72)), "until it answers");
        assert!(!put_off.goes_past(&too_many, at(73)), "ClusterD's own word");
        assert!(!put_off.goes_past(&later, at(74)));
        assert!(!put_off.goes_past(&Ok(()), at(200)));
        assert!(!put_off.goes_past(&later, at(201)));
    }
}
