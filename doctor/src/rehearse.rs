//! Requests a rehearsal of a fault's way from a node to ClusterD, and waits for its result.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use swansong_api::documented::Documented as _;
use swansong_api::node::{FAULTS_RELAYED, REHEARSAL, REHEARSE, RehearsalResult};
use swansong_runtime::kube::error_message;
use tokio::time::{Instant, sleep};

use crate::checks::Status;
use crate::report::Report;
use crate::snapshot::{JobObject, last_rehearsal};

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
        if let Some(result) = last_rehearsal(&found.metadata).filter(|result| result.request == request) {
            return Ok(result);
        }
        sleep(INTERVAL).await;
    }
    Err(RehearseError::NoAnswer(node.to_owned()))
}

/// What the rehearsal of a job doesn't prove, since no dump is ordered.
pub const NOT_PROVEN: [&str; 4] = [
    "that ClusterD orders the dump after a fault",
    "that the healthy ranks have the whole state: its replicas are on several nodes",
    "that the trainer's save handlers work",
    "that the storage takes the files within the limit for saving",
];

/// The rehearsal of a job: every link up to the order, by the checks.
pub fn of_job(report: &Report, now: u64) -> RehearsalResult {
    let status = match report.status {
        Status::Pass | Status::Warn => "pass",
        Status::Unknown => "unknown",
        Status::Fail => "fail",
    };
    let first = report.checks.iter().find(|check| check.status == report.status && status != "pass");
    let message = match first {
        Some(check) => format!("{}: {}", check.link.as_str(), check.seen),
        None => "every link up to the order holds".to_owned(),
    };
    RehearsalResult { request: String::new(), at: now, status: status.to_owned(), message }
}

/// Writes the result on the job.
pub async fn store(client: Client, job: &JobObject, result: &RehearsalResult) -> Result<(), RehearseError> {
    let (namespace, name) = (job.object.namespace().unwrap_or_default(), job.object.name_any());
    let jobs: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &job.kind.resource());
    // Numbers and strings can always be serialized.
    let text = serde_json::to_string(result).unwrap_or_default();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {REHEARSAL: text}}}));
    let stored = jobs.patch(&name, &PatchParams::default(), &patch).await;
    stored.map(drop).map_err(|error| RehearseError::Api(error_message(&error)))
}
