//! What the checks require of a host.

use std::collections::BTreeMap;
use std::time::Duration;

use super::product::{Family, pci_ids};
use super::trust::Trust;
use super::version::Version;
use crate::finding::CheckName;

/// What the operator of a cluster requires of each host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The product family; detected if `None`.
    pub family: Option<Family>,
    /// The product family of each PCI device id.
    pub pci_ids: BTreeMap<u16, Family>,
    /// The number of NPUs of each node; any number above zero if `None`.
    pub npus: Option<u32>,
    /// Requirements of the driver.
    pub driver: DriverSettings,
    /// Paths of npu-smi instead of the usual ones; empty for the usual ones.
    pub npu_smi: Vec<String>,
    /// Path of libmspti.so on the host; not checked if `None`.
    pub host_libmspti: Option<String>,
    /// Path of libtaskd.so on the host; not checked if `None`.
    pub host_libtaskd: Option<String>,
    /// Further required paths.
    pub paths: Vec<String>,
    /// The ports that hostNetwork jobs need; not checked if empty.
    pub ports: Vec<u16>,
    /// How ClusterD is dialled.
    pub clusterd: ClusterdSettings,
    /// The tolerated difference from the API server's clock.
    pub max_skew: Duration,
    /// Checks that are reported without deciding whether the node is ready.
    pub advisory: Vec<CheckName>,
    /// Time between two rounds of checks.
    pub interval: Duration,
}

/// What is required of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverSettings {
    /// The driver's folder; detected if `None`.
    pub path: Option<String>,
    /// The oldest accepted version.
    pub minimum_version: Option<Version>,
    /// Libraries that MindCluster's components load.
    pub libraries: Vec<String>,
    /// Folders that may contain them, besides the usual ones.
    pub library_folders: Vec<String>,
    /// The required owner of the libraries.
    pub trust: Trust,
}

/// How ClusterD's address is dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterdSettings {
    /// Whether it is dialled.
    pub dial: bool,
    /// The address of its gRPC service, `host:port`.
    pub address: String,
    /// Timeout of an attempt.
    pub timeout: Duration,
    /// Time between two attempts.
    pub interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            family: None,
            pci_ids: pci_ids(),
            npus: None,
            driver: DriverSettings {
                path: None,
                minimum_version: None,
                libraries: vec!["libdcmi.so".to_owned()],
                library_folders: Vec::new(),
                trust: Trust::Owner(0),
            },
            npu_smi: Vec::new(),
            host_libmspti: None,
            host_libtaskd: None,
            paths: Vec::new(),
            // MindIO's controller, TaskD Manager and TaskD Proxy.
            ports: vec![8000, 9601, 9602],
            clusterd: ClusterdSettings {
                dial: true,
                // The address to which noded sends its own faults.
                address: "clusterd-grpc-svc.mindx-dl.svc.cluster.local:8899".to_owned(),
                timeout: Duration::from_secs(3),
                interval: Duration::from_mins(1),
            },
            max_skew: Duration::from_secs(30),
            // While ClusterD is down, its check fails on all nodes, and no node is at fault.
            advisory: vec![CheckName::Clusterd],
            interval: Duration::from_secs(5),
        }
    }
}
