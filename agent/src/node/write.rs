//! Writes to the own Node.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use swansong_api::labels::DUMP_READY as LABEL;
use swansong_api::node::{BOOT_ID, DUMP_READY, NOT_READY_TAINT, REHEARSAL, RehearsalResult};

use super::client::{ApiClient, ApiError};
use super::object::{NO_SCHEDULE, NodeState, is_own_taint};
use crate::readiness::{Condition, NodeUpdate};

/// The number of attempts to write the taints when other clients write them at the same time.
const ATTEMPTS: usize = 10;

/// Writes to the own Node.
#[derive(Debug, Clone)]
pub struct NodeWriter {
    api: ApiClient,
    nodes: Api<Node>,
    name: String,
}

impl NodeWriter {
    pub fn new(api: ApiClient, name: &str) -> Self {
        let nodes = Api::all(api.client().clone());
        Self { api, nodes, name: name.to_owned() }
    }

    /// Writes condition, label and boot id in one request. The API server accepts metadata in a status patch, as the kubelet
    /// uses it (`PatchNodeStatus` in `k8s.io/component-helpers`).
    pub async fn update(&self, update: &NodeUpdate) -> Result<NodeState, ApiError> {
        let mut patch = json!({
            "metadata": {"labels": {LABEL: update.label}},
            "status": {"conditions": [condition(DUMP_READY, &update.condition)]},
        });
        if let Some(boot_id) = &update.boot_id {
            patch["metadata"]["annotations"] = json!({BOOT_ID: boot_id});
        }
        self.patch_status(patch).await
    }

    /// Writes one condition.
    pub async fn set_condition(&self, type_: &str, value: &Condition) -> Result<NodeState, ApiError> {
        self.patch_status(json!({"status": {"conditions": [condition(type_, value)]}})).await
    }

    /// Writes the result of a rehearsal.
    pub async fn set_rehearsal(&self, result: &RehearsalResult) -> Result<NodeState, ApiError> {
        // Numbers and strings can always be serialized.
        let text = serde_json::to_string(result).unwrap_or_default();
        self.patch_status(json!({"metadata": {"annotations": {REHEARSAL: text}}})).await
    }

    /// A strategic merge patch selects a condition by its type and keeps the others.
    async fn patch_status(&self, patch: Value) -> Result<NodeState, ApiError> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        Ok(self.api.call(self.nodes.patch_status(&self.name, &params, &patch)).await?.into())
    }

    /// Adds or removes the taint. The list of taints has no keys and is written as a whole, so the request names the resource
    /// version that it is based on, and is repeated after a conflict.
    pub async fn set_taint(&self, state: &NodeState, tainted: bool) -> Result<NodeState, ApiError> {
        let mut state = state.clone();
        let mut attempts = 1;
        loop {
            let mut taints: Vec<Taint> =
                state.taints.iter().filter(|taint| !is_own_taint(taint)).cloned().collect();
            if tainted {
                let (key, effect) = (NOT_READY_TAINT.to_owned(), NO_SCHEDULE.to_owned());
                taints.push(Taint { key, effect, ..Taint::default() });
            }
            let patch =
                json!({"metadata": {"resourceVersion": state.resource_version}, "spec": {"taints": taints}});
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            match self.api.call(self.nodes.patch(&self.name, &params, &patch)).await {
                Ok(node) => return Ok(node.into()),
                Err(error) if error.code() == Some(409) && attempts < ATTEMPTS => {
                    attempts += 1;
                    state = self.api.call(self.nodes.get(&self.name)).await?.into();
                    if state.observed.tainted == tainted {
                        return Ok(state);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn condition(type_: &str, condition: &Condition) -> Value {
    json!({
        "type": type_,
        "status": condition.status.as_str(),
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": time(condition.heartbeat),
        "lastTransitionTime": time(condition.transition),
    })
}

/// A `metav1.Time`, which can express the years 1970 to 9999; a wrong clock may show others.
fn time(time: SystemTime) -> String {
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(time.clamp(UNIX_EPOCH, last)).to_string()
}
