//! Requests a rehearsal of a fault's way from a node to ClusterD, and waits for its result.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use swansong_api::node::{FAULTS_RELAYED, REHEARSAL, REHEARSE, RehearsalResult};
use swansong_runtime::kube::error_message;
use tokio::time::{Instant, sleep};

/// A rehearsal with a ClusterD that accepts nothing ends after some minutes.
const TIMEOUT: Duration = Duration::from_mins(5);
const INTERVAL: Duration = Duration::from_millis(500);

/// No result can be had.
#[derive(Debug, thiserror::Error)]
pub enum RehearseError {
    #[error("the API server: {0}")]
    Api(String),
    #[error(
        "node {0} has no condition {FAULTS_RELAYED}: its agent reports no faults, so there is nothing to rehearse; install the overlay agent-faults"
    )]
    ReportsNoFaults(String),
    #[error(
        "the agent of node {0} didn't answer within {TIMEOUT:?}; see its log, and whether the policy swansong-agent-nodes is as new as the agent"
    )]
    NoAnswer(String),
}

/// Writes the request, and returns the result for it.
pub async fn rehearse(client: Client, node: &str, now: u64) -> Result<RehearsalResult, RehearseError> {
    let nodes: Api<Node> = Api::all(client);
    let failed = |error: kube::Error| RehearseError::Api(error_message(&error));
    let found = nodes.get(node).await.map_err(failed)?;
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    if !conditions.iter().any(|condition| condition.type_ == FAULTS_RELAYED) {
        return Err(RehearseError::ReportsNoFaults(node.to_owned()));
    }
    let request = now.to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {REHEARSE: request}}}));
    nodes.patch(node, &PatchParams::default(), &patch).await.map_err(failed)?;
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        let found = nodes.get(node).await.map_err(failed)?;
        if let Some(result) = result(&found).filter(|result| result.request == request) {
            return Ok(result);
        }
        sleep(INTERVAL).await;
    }
    Err(RehearseError::NoAnswer(node.to_owned()))
}

/// The last rehearsal of a node.
pub fn result(node: &Node) -> Option<RehearsalResult> {
    serde_json::from_str(node.metadata.annotations.as_ref()?.get(REHEARSAL)?).ok()
}
