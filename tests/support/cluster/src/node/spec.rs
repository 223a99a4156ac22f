//! The file that configures the node's first process.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::network::Network;

/// Everything that the processes inside the node's namespaces need to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    pub(crate) network: Network,
    /// The cluster's folder.
    pub(crate) directory: PathBuf,
    pub(crate) kubelet: PathBuf,
    pub(crate) kube_proxy: PathBuf,
    /// Enforces NetworkPolicies, where that is wanted.
    pub(crate) kube_router: Option<PathBuf>,
    /// An image for the process that holds a pod's namespaces.
    pub(crate) pause_image: PathBuf,
    pub(crate) cni_plugins: PathBuf,
}

impl NodeSpec {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read(path).map_err(Error::file("read", path))?;
        serde_json::from_slice(&text).map_err(Error::json(path.display().to_string()))
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a struct of text and numbers has a JSON form")
    }

    /// A folder of the node that takes the place of one of the machine's.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.directory.join("node").join(name)
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// containerd's socket as processes outside of the node see it.
    pub(crate) fn containerd_socket(&self) -> PathBuf {
        self.folder("run").join("containerd/containerd.sock")
    }
}
