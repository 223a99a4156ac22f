//! The writes to the node.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{ApiError, ApiServer};
use super::object::{NO_SCHEDULE, NodeState, is_ours};
use crate::readiness::{BOOT_ID, CONDITION, Condition, LABEL, NodeUpdate, TAINT};
use crate::relay::CONDITION as RELAYED;

/// How often somebody else may come in between.
const ATTEMPTS: usize = 10;

/// Writes condition, label and boot id in one request. The kubelet writes annotations by way of the status too
/// (`PatchNodeStatus` in `k8s.io/component-helpers`), so that one request does what would else be two, of which the
/// second might fail.
///
/// A strategic merge names the condition by its type and leaves all others alone.
pub(crate) async fn tell(api: &ApiServer, node: &str, write: &NodeUpdate) -> Result<NodeState, ApiError> {
    let mut change = json!({
        "metadata": {"labels": {LABEL: write.label}},
        "status": {"conditions": [of_type(CONDITION, &write.condition)]},
    });
    if let Some(boot_id) = &write.boot_id {
        change["metadata"]["annotations"] = json!({BOOT_ID: boot_id});
    }
    let path = format!("/api/v1/nodes/{node}/status");
    let answer =
        api.call(Method::PATCH, &path, "application/strategic-merge-patch+json", bytes(&change)).await?;
    read(&path, &answer)
}

/// Writes the relay's condition.
pub(crate) async fn tell_relayed(
    api: &ApiServer,
    node: &str,
    condition: &Condition,
) -> Result<NodeState, ApiError> {
    let change = json!({"status": {"conditions": [of_type(RELAYED, condition)]}});
    let path = format!("/api/v1/nodes/{node}/status");
    let answer =
        api.call(Method::PATCH, &path, "application/strategic-merge-patch+json", bytes(&change)).await?;
    read(&path, &answer)
}

fn of_type(kind: &str, condition: &Condition) -> Value {
    json!({
        "type": kind,
        "status": condition.status.as_str(),
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": time(condition.heartbeat),
        "lastTransitionTime": time(condition.transition),
    })
}

/// Adds the taint or takes it away. A Node's taints are one list without keys, written as a whole: the write names the
/// version that it is based on, and is done again on a newer one if somebody else was faster.
pub(crate) async fn toggle_taint(
    api: &ApiServer,
    node: &str,
    state: &NodeState,
    tainted: bool,
) -> Result<NodeState, ApiError> {
    let path = format!("/api/v1/nodes/{node}");
    let mut state = state.clone();
    let mut attempts = 1;
    loop {
        let mut taints: Vec<Value> = state.taints.iter().filter(|taint| !is_ours(taint)).cloned().collect();
        if tainted {
            taints.push(json!({"key": TAINT, "effect": NO_SCHEDULE}));
        }
        let change =
            json!({"metadata": {"resourceVersion": state.resource_version}, "spec": {"taints": taints}});
        match api.call(Method::PATCH, &path, "application/merge-patch+json", bytes(&change)).await {
            Ok(answer) => return read(&path, &answer),
            Err(error) if error.code() == Some(StatusCode::CONFLICT) && attempts < ATTEMPTS => {
                attempts += 1;
                state = read(&path, &api.call(Method::GET, &path, "", Vec::new()).await?)?;
                if state.observed.tainted == tainted {
                    return Ok(state);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn bytes(change: &Value) -> Vec<u8> {
    change.to_string().into_bytes()
}

fn read(path: &str, answer: &[u8]) -> Result<NodeState, ApiError> {
    NodeState::read(answer)
        .map_err(|error| ApiError::NotUnderstood { path: path.to_owned(), problem: error.to_string() })
}

/// As `metav1.Time` has it.
pub(super) fn time(time: std::time::SystemTime) -> String {
    // Dates before 1970 and after 9999 can't be written; a clock that shows one is wrong anyway.
    let shown = time.max(std::time::UNIX_EPOCH);
    let end = std::time::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(shown.min(end)).to_string()
}
