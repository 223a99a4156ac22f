//! What an agent's `/status` says. Members that another version doesn't have are empty.

use std::collections::BTreeMap;

use serde::Deserialize;
use swansong_api::pod_status::PodStatus;

/// The part of `/status` that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentStatus {
    pub version: String,
    pub report: Option<AgentReport>,
    pub preload: Vec<PodVerdict>,
    /// `None` if the agent is older than this list.
    pub pods: Option<Vec<PodStatus>>,
    /// `None` if the agent reports no faults.
    pub faults: Option<AgentFaults>,
}

/// The faults of the agent's node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentFaults {
    /// Those that haven't ended at ClusterD.
    pub faults: Vec<AgentFault>,
    /// Those with a job whose outcome is awaited, by id.
    pub outcomes: BTreeMap<String, serde_json::Value>,
}

/// A fault of the agent's node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentFault {
    pub id: String,
    /// The name of the phase, or an object with the reason why it is blocked.
    pub phase: serde_json::Value,
}

/// The last round of checks of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentReport {
    pub checks: Vec<AgentCheck>,
}

/// A check of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentCheck {
    pub name: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// What the agent found out about the processes of a Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodVerdict {
    pub uid: String,
    pub containers: Vec<ContainerVerdict>,
    /// `None` if the libraries aren't searched, or the search hasn't ended.
    pub discovery: Option<Discovery>,
}

/// How the search for the libraries of an image ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Discovery {
    pub reason: String,
    pub message: String,
}

/// The same of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerVerdict {
    pub name: String,
    #[serde(flatten)]
    pub preload: Preload,
    pub launcher_hook: Option<HookVerdict>,
    pub missing_environment: Vec<String>,
    /// `None` if its files can't be read.
    pub image: Option<ImageReport>,
}

/// What the image of a container has and lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImageReport {
    pub findings: Vec<ImageFinding>,
}

/// The result of one check of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImageFinding {
    pub check: String,
    /// `ok`, `warning` or `missing`.
    pub status: String,
    pub message: String,
}

/// Whether the preload is live; all is `None` if nothing is preloaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Preload {
    pub outcome: Option<String>,
    pub reason: Option<String>,
    pub message: Option<String>,
}

/// Whether the launcher hook is active.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HookVerdict {
    pub is_active: Option<bool>,
    pub reason: String,
    pub message: String,
}

impl AgentStatus {
    /// The result of a check of the host.
    pub fn check(&self, name: &str) -> Option<&AgentCheck> {
        self.report.as_ref()?.checks.iter().find(|check| check.name == name)
    }

    /// What is seen of the sockets of a Pod.
    pub fn pod(&self, uid: &str) -> Option<&PodStatus> {
        self.pods.as_ref()?.iter().find(|pod| pod.uid == uid)
    }

    /// The verdict on the processes of a Pod.
    pub fn verdict(&self, uid: &str) -> Option<&PodVerdict> {
        self.preload.iter().find(|pod| pod.uid == uid)
    }
}
