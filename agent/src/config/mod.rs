//! The agent's configuration: one YAML file, strict, proven before it is used.

mod check;
mod faults;
mod file;
mod relay;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub use self::faults::FaultSettings;
pub use self::relay::{RelaySettings, Via};
use crate::check::{CheckName, Family, Trust, Version, pci_ids};
use crate::readiness;
pub use swansong_runtime::config::{ConfigError, Problem, Problems};

/// What the operator of a cluster may set; plain data that has been proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The product family; detected when `None`.
    pub family: Option<Family>,
    /// Which families the PCI device ids belong to.
    pub pci_ids: BTreeMap<u16, Family>,
    /// How many NPUs each node has to have; any number above zero when `None`.
    pub npus: Option<u32>,
    /// The driver.
    pub driver: Driver,
    /// Where npu-smi may be, instead of the usual places; empty for those.
    pub npu_smi: Vec<String>,
    /// libmspti.so on the host; not checked when `None`.
    pub host_libmspti: Option<String>,
    /// libtaskd.so on the host; not checked when `None`.
    pub host_libtaskd: Option<String>,
    /// Further paths that have to be there.
    pub paths: Vec<String>,
    /// The ports that hostNetwork jobs need.
    pub ports: Vec<u16>,
    /// ClusterD.
    pub clusterd: Clusterd,
    /// By how much the clock may differ from that of the API server.
    pub max_skew: Duration,
    /// How long a process has to live before the preload check judges it, and a bad verdict to stand before it is told.
    pub grace: Duration,
    /// How often a running agent looks at the processes of injected pods.
    pub scan_interval: Duration,
    /// Checks that are told and don't decide whether the node is ready.
    pub advisory: Vec<CheckName>,
    /// How often a running agent checks the host.
    pub interval: Duration,
    /// When a running agent tells what.
    pub readiness: readiness::Settings,
    /// How faults of devices are told and classified.
    pub faults: FaultSettings,
}

/// The driver and what is demanded of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// Its folder; found out when `None`.
    pub path: Option<String>,
    /// The oldest version that will do.
    pub minimum_version: Option<Version>,
    /// Libraries that MindCluster's components have to find and trust.
    pub libraries: Vec<String>,
    /// Folders where they may be, besides the usual ones.
    pub library_folders: Vec<String>,
    /// Who has to own them.
    pub trust: Trust,
}

/// ClusterD and how it is dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clusterd {
    /// Whether it is dialled.
    pub dial: bool,
    /// Its gRPC service, `host:port`.
    pub address: String,
    /// How long to wait.
    pub timeout: Duration,
    /// How often a running agent dials.
    pub interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            family: None,
            pci_ids: pci_ids(),
            npus: None,
            driver: Driver {
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
            clusterd: Clusterd {
                dial: true,
                // Where noded sends its own faults to.
                address: "clusterd-grpc-svc.mindx-dl.svc.cluster.local:8899".to_owned(),
                timeout: Duration::from_secs(3),
                interval: Duration::from_mins(1),
            },
            max_skew: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            scan_interval: Duration::from_secs(30),
            // A ClusterD that is down is no fault of any node, and of all of them at the same time.
            advisory: vec![CheckName::Clusterd],
            interval: Duration::from_secs(5),
            readiness: readiness::Settings::default(),
            faults: FaultSettings::default(),
        }
    }
}

impl Config {
    /// Reads a configuration from YAML; an empty text is the default.
    ///
    /// # Errors
    ///
    /// With every fault found, each with its place and key.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        check::check(swansong_runtime::config::read_shape(text, None)?)
    }

    /// Reads a configuration from a file.
    ///
    /// # Errors
    ///
    /// When the file can't be read or [`Config::parse`] refuses it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        swansong_runtime::config::load(path, Self::parse)
    }
}
