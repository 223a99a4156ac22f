//! The job guard beside the server. Nothing that befalls it touches admission or readiness.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use swansong_reset_config::Guard;
use swansong_webhook::config::Config;
use swansong_webhook::server::Metrics;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::USER_AGENT;
use super::observe;
use swansong_runtime::kube::is_in_cluster;

/// Pauses before it is started anew; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_mins(1);

/// When the guard runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum When {
    /// In a Pod
    Auto,
    /// Anywhere, in the cluster of the kubeconfig
    On,
    /// Never
    Off,
}

impl When {
    /// Who tries the webhook on his own machine doesn't want objects created in whatever cluster his kubeconfig names.
    fn applies(self) -> bool {
        match self {
            Self::Auto => is_in_cluster(),
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// What the guard is run with.
pub(super) struct JobGuard {
    pub(super) when: When,
    pub(super) config: Arc<ArcSwap<Config>>,
    /// Says that there is another configuration.
    pub(super) reloaded: watch::Receiver<()>,
    pub(super) metrics: Arc<Metrics>,
}

impl JobGuard {
    /// Guards for ever, if at all: whenever the guard ends it is started anew after a pause.
    pub(super) async fn run(mut self) -> Infallible {
        if !self.when.applies() {
            return pending().await;
        }
        self.metrics.job_guard().enable(true);
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let triggers = self.config.load().policy().triggers.clone();
            // A task of its own, so that a panic ends nothing else; in a set, so that it ends with this one.
            let mut alone = JoinSet::new();
            alone.spawn(guard(triggers.clone(), Arc::clone(&self.metrics)));
            let ended = tokio::select! {
                ended = alone.join_next() => ended,
                () = self.other_triggers(&triggers) => {
                    info!("the strategies are others now; the job guard begins anew");
                    self.metrics.job_guard().reset();
                    continue;
                }
            };
            let problem = match ended {
                Some(Ok(problem)) => problem,
                Some(Err(panic)) => panic.to_string(),
                None => "it was never started".to_owned(),
            };
            self.metrics.job_guard().ended();
            if begun.elapsed() > LAST_PAUSE {
                pause = FIRST_PAUSE;
            }
            warn!(problem, ?pause, "the job guard doesn't run; starting it anew");
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Comes when the configuration names other strategies than these.
    async fn other_triggers(&mut self, triggers: &[String]) {
        loop {
            if self.config.load().policy().triggers != triggers {
                return;
            }
            if self.reloaded.changed().await.is_err() {
                // Without a file nothing is ever reloaded.
                return pending().await;
            }
        }
    }
}

/// Guards until something prevents it, and says what.
async fn guard(triggers: Vec<String>, metrics: Arc<Metrics>) -> String {
    let config = match swansong_runtime::kube::config(USER_AGENT).await {
        Ok(config) => config,
        Err(problem) => return format!("there is no cluster to guard the jobs of: {problem}"),
    };
    let guard = match Guard::new(config, triggers, observe::job_guard(metrics)) {
        Ok(guard) => guard,
        Err(problem) => return problem.to_string(),
    };
    match guard.run().await {
        Err(problem) => problem.to_string(),
        Ok(never) => match never {},
    }
}
