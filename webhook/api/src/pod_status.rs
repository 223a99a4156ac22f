//! What an agent publishes of the Pods with NPUs on its node: the list `pods` of its `/status`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::env::{
    MS_TFT_IP, MS_TFT_PORT, ORDER_LIMIT, POD_IP, SAVE_LIMIT, TASKD_PROCESS_ENABLE, TTP_ADDR, TTP_PORT,
};

/// The variables of which an agent publishes the values: addresses, ports and limits, nothing secret.
pub const PUBLISHED: [&str; 8] =
    [POD_IP, TTP_PORT, TTP_ADDR, MS_TFT_IP, MS_TFT_PORT, SAVE_LIMIT, ORDER_LIMIT, TASKD_PROCESS_ENABLE];

/// What is seen of a Pod by its processes and sockets. Readers ignore members that they don't know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The training container.
    pub container: String,
    /// When it was observed, in milliseconds since 1970.
    pub observed_at: u64,
    /// Sockets of the Pod that listen on the ports of MindIO's controller and of the TaskD Manager; `None` if they can't be
    /// read.
    pub listening: Option<Vec<Listener>>,
    /// The number of established connections from the Pod to MindIO's controller, one for each processor; `None` if they can't
    /// be read.
    pub connected: Option<u32>,
    /// The number of established connections that a controller in the Pod has accepted.
    pub accepted: Option<u32>,
    /// The processes that have such a connection; `None` without the permission to inspect processes.
    pub processors: Option<Vec<Processor>>,
    /// The process that listens on the TaskD Manager's port; `None` if there is none, or without that permission.
    pub manager: Option<Manager>,
    /// Whether the training program can save a dying checkpoint; `None` if none is known to run.
    pub trainer: Option<TrainerStatus>,
}

/// The verdict on a training program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainerStatus {
    /// `can`, `can't` or `can't tell`.
    pub verdict: String,
    /// The reasons, as sentences.
    pub message: String,
}

/// A listening socket.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    pub port: u16,
    /// The address that it is bound to.
    pub address: String,
}

/// A training process that is connected to MindIO's controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Processor {
    pub pid: i32,
    /// Its rank in the job, by its environment.
    pub rank: Option<u32>,
    pub connections: u32,
}

/// The TaskD Manager's process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manager {
    pub pid: i32,
    /// Those of the [`PUBLISHED`] variables that it has; `None` if its environment can't be read.
    pub environment: Option<BTreeMap<String, String>>,
}
