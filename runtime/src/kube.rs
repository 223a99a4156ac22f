//! Clients of the API server, and messages for its errors.

use std::env;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// Set by the kubelet in every container.
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// There is no usable cluster configuration. The text completes a sentence: "…, but {error}".
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// Whether this process runs in a Pod.
pub fn is_in_cluster() -> bool {
    env::var_os(SERVICE_HOST).is_some()
}

/// The configuration of the cluster that this Pod runs in; outside a Pod, that of the kubeconfig.
///
/// `component` names the program in the user agent (`swansong-webhook/1.2.3`), which identifies
/// the client in audit logs.
pub async fn config(component: &str) -> Result<Config, ConfigError> {
    let config = if is_in_cluster() {
        // By the address in the environment: cluster DNS may start after this Pod.
        Config::incluster().map_err(|error| format!("the service account can't be used: {error}"))
    } else {
        let inferred = Config::infer().await;
        inferred.map_err(|error| format!("this isn't a Pod, and {}", kubeconfig_problem(&error)))
    }
    .map_err(ConfigError)?;
    Ok(named(config, component))
}

/// Adds the user agent.
fn named(mut config: Config, component: &str) -> Config {
    let agent = format!("{component}/{}", env!("CARGO_PKG_VERSION"));
    if let Ok(agent) = HeaderValue::try_from(agent) {
        config.headers.push((USER_AGENT, agent));
    }
    config
}

/// Which cluster of which kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterChoice {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

/// The configuration of a chosen cluster; that of [`config`] without a choice.
pub async fn chosen_config(component: &str, choice: ClusterChoice) -> Result<Config, ConfigError> {
    let ClusterChoice { kubeconfig, context } = choice;
    if kubeconfig.is_none() && context.is_none() {
        return config(component).await;
    }
    let problem =
        |error: KubeconfigError| ConfigError(format!("the kubeconfig can't be used: {}", causes(&error)));
    let file = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(file.map_err(problem)?, &options).await.map_err(problem)?;
    Ok(named(config, component))
}

/// A client of [`config`]'s cluster. A request that is answered with 429, 503 or 504 is sent again after the server's
/// `Retry-After` (kube's [`RetryPolicy`](kube::client::retry::RetryPolicy)).
pub async fn client(component: &str) -> Result<Client, ConfigError> {
    let config = config(component).await?;
    Client::try_from(config)
        .map_err(|error| ConfigError(format!("no client can be made: {}", causes(&error))))
}

fn kubeconfig_problem(error: &InferConfigError) -> String {
    match error.source().and_then(|source| source.downcast_ref()) {
        Some(KubeconfigError::ReadConfig(problem, path)) if problem.kind() == io::ErrorKind::NotFound => {
            format!("there is no {}", path.display())
        }
        Some(KubeconfigError::ReadConfig(problem, path)) => {
            format!("{} can't be read ({problem})", path.display())
        }
        Some(KubeconfigError::Parse(error)) => {
            let error = error.to_string();
            format!("the kubeconfig isn't valid YAML ({})", error.lines().next().unwrap_or_default())
        }
        Some(other) => format!("the kubeconfig can't be used ({other})"),
        None => error.to_string(),
    }
}

/// What went wrong with a request and, where the API server refused it, what to do: for logs and conditions.
pub fn error_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let advice = match status.code {
                401 => "; check the ServiceAccount's token",
                403 => "; allow it by RBAC",
                _ => "",
            };
            let kind = format!("{} {}", status.code, status.reason);
            format!("{} ({}){advice}", status.message, kind.trim_end())
        }
        other => causes(other),
    }
}

/// The HTTP status of an error that the API server answered with.
pub fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Whether the API server refused an object because its namespace is being deleted.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// How long the API server asks to wait before the next attempt.
pub fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()))
}

/// An error followed by its sources, which kube's own text leaves out.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, retry_after_seconds: u32) -> kube::Error {
        let status = serde_json::json!({
            "status": "Failure",
            "message": "nodes is forbidden",
            "reason": "Forbidden",
            "code": code,
            "details": {"retryAfterSeconds": retry_after_seconds},
        });
        kube::Error::Api(serde_json::from_value(status).expect("a Status"))
    }

    #[test]
    fn refusals_name_code_and_remedy() {
        let message = error_message(&refused(403, 0));
        assert_eq!(message, "nodes is forbidden (403 Forbidden); allow it by RBAC");
        assert_eq!(status_code(&refused(403, 0)), Some(403));
    }

    #[test]
    fn retry_after_comes_from_the_status() {
        assert_eq!(retry_after(&refused(429, 7)), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(&refused(429, 0)), None);
        assert_eq!(retry_after(&kube::Error::LinesCodecMaxLineLengthExceeded), None);
    }
}
