//! The reset-config controller beside the server. Its failures affect neither admission nor readiness.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use swansong_reset_config::{Metrics, Policy};
use swansong_runtime::backoff::{Backoff, RESTART};
use swansong_runtime::kube::{config, is_in_cluster};
use swansong_webhook::config::Config;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

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
    pub(super) config: Arc<ArcSwap<Config>>,
    /// Reports that the configuration was reloaded.
    pub(super) reloaded: watch::Receiver<()>,
    pub(super) metrics: Metrics,
}

impl ResetConfig {
    /// Runs the controller, if enabled, and restarts it with a backoff whenever it ends.
    pub(super) async fn run(mut self) -> Infallible {
        if !self.options.mode.is_enabled() {
            return pending().await;
        }
        self.metrics.enabled.set(1);
        let mut backoff = Backoff::new(RESTART);
        loop {
            let started = Instant::now();
            let triggers = self.config.load().policy().triggers.clone();
            let policy = Policy { triggers: triggers.clone(), grace_period: self.options.grace_period };
            // A spawned task contains panics; the set aborts it together with this one.
            let mut controller = JoinSet::new();
            controller.spawn(run(policy, self.metrics.clone()));
            let ended = tokio::select! {
                ended = controller.join_next() => ended,
                () = self.triggers_changed(&triggers) => {
                    info!("trigger strategies changed; restarting the reset-config controller");
                    continue;
                }
            };
            let problem = match ended {
                Some(Ok(problem)) => problem,
                Some(Err(panic)) => panic.to_string(),
                None => "it was not spawned".to_owned(),
            };
            self.metrics.restarts.inc();
            if started.elapsed() > RESTART.max {
                backoff.reset();
            }
            let delay = backoff.next_delay(None);
            warn!(problem, ?delay, "reset-config controller ended, restarting it");
            sleep(delay).await;
        }
    }

    /// Returns when the configuration names other strategies than these.
    async fn triggers_changed(&mut self, triggers: &[String]) {
        while self.config.load().policy().triggers == triggers {
            if self.reloaded.changed().await.is_err() {
                // Without a configuration file there are no reloads.
                return pending().await;
            }
        }
    }
}

/// Runs the controller until it ends, and returns why.
async fn run(policy: Policy, metrics: Metrics) -> String {
    let config = match config(USER_AGENT).await {
        Ok(config) => config,
        Err(error) => return format!("no cluster is configured: {error}"),
    };
    match swansong_reset_config::run(config, policy, metrics).await {
        Ok(never) => match never {},
        Err(error) => error.to_string(),
    }
}
