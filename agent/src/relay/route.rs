//! The ways to ClusterD, in the order in which they are tried: the cluster's relay, ClusterD itself, a ConfigMap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use swansong_clusterd::{Grpc, PublicFault, SendError, Sink, config_map};
use swansong_relay::client::RelaySink;
use tracing::warn;

use crate::node::{ApiError, ApiServer};

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

/// All ways that are open.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) relay: Option<RelaySink>,
    pub(crate) grpc: Grpc,
    pub(crate) config_map: Option<ConfigMapSink>,
}

impl Routes {
    /// Sends a batch the first way on which somebody answers. Which way it was, and what the answer is.
    ///
    /// A refusal is an answer: it isn't carried to somebody else. A way on which nobody answers may have carried the
    /// batch all the same; ClusterD knows faults by their ids and passes over those that it has.
    pub(crate) async fn send(&self, batch: &[PublicFault]) -> (Route, Result<(), SendError>) {
        if let Some(relay) = &self.relay {
            match relay.send(batch).await {
                Err(SendError::Unavailable(why)) => {
                    warn!(why, "the relay doesn't answer; asking ClusterD itself");
                }
                answer => return (Route::Relay, answer),
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

impl Sink for ConfigMapSink {
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

/// Now, in milliseconds since 1970.
pub(crate) fn millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
