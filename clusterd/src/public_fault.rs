//! A fault as ClusterD takes it.
//!
//! Source: `docs/zh/scheduling/06_api/04_clusterd/03_public_fault_apis.md` and
//! `clusterd/pkg/application/publicfault/checker.go` of MindCluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use swansong_fault::Assertion;

/// What kind of thing a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FaultType {
    /// A device.
    #[serde(rename = "NPU")]
    Npu,
    /// The node.
    Node,
}

/// What ClusterD does with a fault; each has a code of Swansong's own in `publicCustomization.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    /// Ranks on the device are ended, the job recovers or dumps (`SeparateNPU`).
    ChipSeparate,
    /// Handled where the job asks for it (`SubHealthFault`).
    ChipSubHealth,
    /// As `ChipSeparate`, for all devices of the node.
    NodeSeparate,
    /// As `ChipSubHealth`, for the node.
    NodeSubHealth,
    /// Told and nothing else (`NotHandleFault`).
    Notice,
}

/// A fault as ClusterD takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublicFault {
    /// The same for all that is sent of one episode; 8–128 letters, digits, `-`, `_`, `.`.
    pub fault_id: String,
    /// About what.
    pub fault_type: FaultType,
    /// What ClusterD is to do.
    pub class: Class,
    /// When the fault *occurred*, also in a recovery; milliseconds since 1970.
    pub fault_time: u64,
    /// Came, went, or merely happened.
    pub assertion: Assertion,
    /// Where, for people: at most ten pairs; keys of at most 16, values of at most 128 bytes.
    pub location: BTreeMap<String, String>,
    /// The node's name, never empty: with an empty one ClusterD picks some other node.
    pub node: String,
    /// Physical ids of the devices, 0–31.
    pub devices: Vec<u32>,
    /// For people: at most 512 characters, no white space but single blanks.
    pub description: String,
}
