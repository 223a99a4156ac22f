//! How the API server is found.

use std::env;
use std::error::Error;
use std::io;

use anyhow::anyhow;
use kube::config::{InferConfigError, KubeconfigError};

/// Set by the kubelet in every pod.
pub(crate) const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// In a pod the API server is called by the address in the environment: cluster DNS may come up after us. The error is
/// half a sentence on what is missing.
pub(crate) async fn client_config() -> anyhow::Result<kube::Config> {
    // The errors tell their causes themselves, so there is no chain to keep.
    let (config, fault) = if env::var_os(IN_CLUSTER).is_some() {
        (kube::Config::incluster().map_err(|error| error.to_string()), "the service account can't be used,")
    } else {
        (kube::Config::infer().await.map_err(|error| kubeconfig_fault(&error)), "this isn't a Pod, and")
    };
    config.map_err(|problem| anyhow!("{fault} {problem}"))
}

/// What is wrong with the kubeconfig. That there is no service account either goes without saying outside a pod.
fn kubeconfig_fault(error: &InferConfigError) -> String {
    match error.source().and_then(|source| source.downcast_ref()) {
        Some(KubeconfigError::ReadConfig(problem, path)) if problem.kind() == io::ErrorKind::NotFound => {
            format!("there is no {}", path.display())
        }
        Some(KubeconfigError::ReadConfig(problem, path)) => {
            format!("{} can't be read ({problem})", path.display())
        }
        Some(KubeconfigError::Parse(error)) => {
            let error = error.to_string();
            format!("the kubeconfig is no sound YAML ({})", error.lines().next().unwrap_or_default())
        }
        Some(other) => format!("the kubeconfig can't be used ({other})"),
        None => error.to_string(),
    }
}
