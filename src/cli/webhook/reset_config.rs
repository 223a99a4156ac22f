//! The reset-config controller beside the server. Its failures affect neither admission nor readiness.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use swansong_reset_config::{Metrics, Policy};
use swansong_runtime::kube::{config, is_in_cluster};
use swansong_runtime::supervisor::{TaskError, Tasks, supervise};
use swansong_webhook::config::Config;
use tokio::sync::watch;
use tracing::info;

use super::USER_AGENT;

/// Options of the controller.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Options {
    /// Whether to create the reset ConfigMap of jobs that ask for a dump and have none
    #[arg(
        long = "reset-config-controller",
        env = "SWANSONG_RESET_CONFIG_CONTROLLER",
        value_name = "WHEN",
        value_enum,
        default_value = "auto"
    )]
    mode: Mode,
    /// How long a reset ConfigMap must be missing before it is created, so that a job's own takes precedence
    #[arg(long = "reset-config-grace-period", env = "SWANSONG_RESET_CONFIG_GRACE_PERIOD", value_name = "TIME",
          default_value = "10s", value_parser = humantime::parse_duration)]
    grace_period: Duration,
}

/// When the controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// In a Pod
    Auto,
    /// Anywhere, in the cluster of the kubeconfig
    On,
    /// Don't run it
    Off,
}

impl Mode {
    /// Outside a Pod the controller doesn't create objects in the cluster of the kubeconfig unless `on` is set.
    fn is_enabled(self) -> bool {
        match self {
            Self::Auto => is_in_cluster(),
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// What the controller runs with.
pub(super) struct ResetConfig {
    pub(super) options: Options,
    pub(super) config: watch::Receiver<Config>,
    pub(super) metrics: Metrics,
}

impl ResetConfig {
    /// Runs the controller, if enabled. It starts again with a backoff whenever it ends, and with other strategies.
    pub(super) async fn run(mut self) -> Infallible {
        if !self.options.mode.is_enabled() {
            return pending().await;
        }
        self.metrics.enabled.set(1);
        loop {
            let triggers = self.config.borrow().policy().triggers.clone();
            let policy = Policy { triggers: triggers.clone(), grace_period: self.options.grace_period };
            let metrics = self.metrics.clone();
            let was_started = AtomicBool::new(false);
            let start = move |_| {
                if was_started.swap(true, Relaxed) {
                    metrics.restarts.inc();
                }
                run(policy.clone(), metrics.clone())
            };
            let task = Tasks::default().add_optional("reset-config controller", Duration::MAX);
            tokio::select! {
                never = supervise(task, start) => match never {},
                () = self.triggers_changed(&triggers) => {
                    info!("trigger strategies changed; restarting the reset-config controller");
                }
            }
        }
    }

    /// Returns when the configuration names other strategies than these.
    async fn triggers_changed(&mut self, triggers: &[String]) {
        if self.config.wait_for(|config| config.policy().triggers != triggers).await.is_err() {
            // Without a configuration file there are no reloads.
            pending::<()>().await;
        }
    }
}

/// Runs the controller until it ends, and returns why.
async fn run(policy: Policy, metrics: Metrics) -> Result<Infallible, TaskError> {
    let config = config(USER_AGENT).await;
    let config = config.map_err(|error| TaskError(format!("no cluster is configured: {error}")))?;
    let ended = swansong_reset_config::run(config, policy, metrics).await;
    ended.map_err(|error| TaskError(error.to_string()))
}
