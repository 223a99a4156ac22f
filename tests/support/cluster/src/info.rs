//! The description of a running cluster.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Tier;

/// The description of a running cluster: the line of JSON that `testcluster up --json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// The tier of the cluster.
    pub tier: Tier,
    /// Its folder, gone with the cluster unless `SWANSONG_KEEP=1`.
    pub directory: PathBuf,
    /// A kubeconfig with all rights.
    pub kubeconfig: PathBuf,
    /// Address of the API server.
    pub api_url: String,
    /// The certificate authority of the API server, PEM.
    pub ca_certificate: PathBuf,
    /// The API server's audit log, an event a line.
    pub audit_log: PathBuf,
    /// Logs of all the cluster's programs.
    pub logs: PathBuf,
    /// A kubectl of the same version.
    pub kubectl: PathBuf,
    /// Process id of the supervisor.
    pub supervisor: u32,
    /// What only a cluster with a node has.
    pub node: Option<NodeInfo>,
}

/// What only a cluster with a node has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeInfo {
    pub name: String,
    /// The socket of its containerd; images of pods are in the namespace `k8s.io`.
    pub containerd_socket: PathBuf,
    /// The address under which pods reach this process.
    pub host_address: Ipv4Addr,
    /// The node's address, also that of pods on the host network.
    pub node_address: Ipv4Addr,
    /// Addresses of pods. This process reaches them, too.
    pub pod_network: String,
    /// Addresses of Services. This process reaches them, too.
    pub service_network: String,
}
