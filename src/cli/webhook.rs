//! `swansong webhook`: the admission server of a cluster.

mod background;
mod certificate;
mod nodes;
mod observe;
mod open_files;
mod reset_config;
mod rotation;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use swansong_certs::{CertificateMetrics, Resolver};
use swansong_webhook::config::{Config, ConfigEvent, ConfigWatcher};
use swansong_webhook::ready_nodes::LastSeen;
use swansong_webhook::server::{Limits, Metrics, Parts, Server};
use tokio::sync::watch;
use tracing::{info, warn};

use self::background::Background;
use self::certificate::Certificate;
use self::nodes::Looking;
use self::reset_config::ResetConfig;
use super::signals::Signals;
use crate::logging::Logging;

/// Names the webhook in requests to the API server.
const USER_AGENT: &str = "swansong-webhook";

/// More workers than this serve nothing but memory: one answers tens of thousands of reviews a second.
const MOST_WORKERS: usize = 4;

/// Answer admission reviews over HTTPS, until SIGTERM
// The last of a flag wins, so that an overlay of the manifests can append its own.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Webhook {
    /// Configuration file, YAML; reloaded when it changes
    #[arg(long, env = "SWANSONG_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for reviews (POST /mutate); port 0 chooses a free one
    #[arg(long, env = "SWANSONG_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// Address for /livez, /readyz and /metrics, without TLS
    #[arg(long, env = "SWANSONG_HEALTH_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8080")]
    health_listen: SocketAddr,
    #[command(flatten)]
    certificate: Certificate,
    /// How often the configuration and certificate files are looked at
    #[arg(long, env = "SWANSONG_RELOAD_INTERVAL", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    reload_interval: Duration,
    /// How long to go on serving after SIGTERM, unready already
    #[arg(long, env = "SWANSONG_DRAIN_DELAY", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    drain_delay: Duration,
    /// How long requests in flight may take after that
    #[arg(long, env = "SWANSONG_DRAIN_TIMEOUT", value_name = "TIME", default_value = "10s",
          value_parser = humantime::parse_duration)]
    drain_timeout: Duration,
    /// How long a review may take to arrive, and half of the API server's own time-out if that is less
    #[arg(long, env = "SWANSONG_REVIEW_TIMEOUT", value_name = "TIME", default_value = "3s",
          value_parser = humantime::parse_duration)]
    review_timeout: Duration,
    /// How long the head of a request may take, and the reading of an answer
    #[arg(long, env = "SWANSONG_CLIENT_TIMEOUT", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    client_timeout: Duration,
    /// How long a connection may be without a request. Longer than the API server's 90 s, so that it closes first
    #[arg(long, env = "SWANSONG_IDLE_TIMEOUT", value_name = "TIME", default_value = "2m",
          value_parser = humantime::parse_duration)]
    idle_timeout: Duration,
    /// Most open connections; beyond, the longest idle gives way
    #[arg(long, env = "SWANSONG_MAX_CONNECTIONS", value_name = "N", default_value = "1024")]
    max_connections: NonZeroUsize,
    /// Memory for reviews beyond 16 KiB, all together, in MiB; at least one of 8 MiB is always taken
    #[arg(long, env = "SWANSONG_BODY_MEMORY", value_name = "MIB", default_value = "64")]
    body_memory: NonZeroU32,
    /// Threads that answer reviews [default: one for each core, at most 4]
    #[arg(long, env = "SWANSONG_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// How often is looked whether a node is ready, when nodeReadiness is require
    #[arg(long, env = "SWANSONG_NODES_INTERVAL", value_name = "TIME", default_value = "15s", hide = true,
          value_parser = humantime::parse_duration)]
    nodes_interval: Duration,
    #[command(flatten)]
    reset_config: reset_config::Options,
    #[command(flatten)]
    logging: Logging,
}

impl Webhook {
    /// Serves until it is told to stop.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        self.logging.start();
        let workers = self.workers.map_or_else(
            || available_parallelism().map_or(1, |cores| cores.get().min(MOST_WORKERS)),
            NonZeroUsize::get,
        );
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()
            .context("the threads can't be started")?;
        let result = runtime.block_on(self.serve());
        // Not waiting for a look at a file on a mount that hangs.
        runtime.shutdown_background();
        result
    }

    async fn serve(self) -> anyhow::Result<()> {
        let signals = Signals::listen().context("signals can't be listened for")?;
        let (metrics, (certificate_metrics, reset_config_metrics)) = Metrics::with(|registry| {
            let certificate = CertificateMetrics::register(registry);
            let registry = registry.sub_registry_with_prefix("reset_config");
            (certificate, swansong_reset_config::Metrics::register(registry))
        });
        let metrics = Arc::new(metrics);
        let mut background = Background::default();
        let (reload, reloaded) = watch::channel(());
        let config = self.config(&metrics, reload, &mut background)?;
        let ready_nodes = Arc::new(LastSeen::default());
        let looking = Looking::new(Arc::clone(&config), Arc::clone(&ready_nodes), self.nodes_interval);
        background.start(looking.run());
        let reset_config = ResetConfig {
            options: self.reset_config,
            config: Arc::clone(&config),
            reloaded,
            metrics: reset_config_metrics,
        };
        background.start(reset_config.run());
        let resolver = Resolver::new();
        let observer = observe::certificate(certificate_metrics);
        let tls = self.certificate.tls(&resolver, &observer, self.reload_interval, &mut background)?;
        let limits = self.limits();
        open_files::make_room(limits.connections.saturating_add(limits.handshakes));
        let source =
            self.certificate.start(&resolver, &observer, self.reload_interval, &mut background).await?;
        let first = Arc::clone(&resolver);
        let ready = async move { drop(first.ready().await) };
        let server = Server::bind(Parts {
            listen: self.listen,
            health_listen: self.health_listen,
            tls,
            has_certificate: Box::new(move || resolver.current().is_some()),
            config,
            ready_nodes,
            metrics,
            limits,
        })
        .await?;
        info!(
            address = %server.address(),
            health_address = %server.health_address(),
            certificate = source,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
        let mut broken = None;
        let stop = async {
            tokio::select! {
                () = signals.stop() => {}
                error = background.broken() => broken = Some(error),
            }
        };
        // In good order also when something broke: others take over meanwhile.
        server.run(ready, stop).await;
        broken.map_or(Ok(()), Err)
    }

    fn limits(&self) -> Limits {
        Limits {
            connections: self.max_connections.get(),
            large_bodies: u64::from(self.body_memory.get()) << 20,
            review: self.review_timeout,
            head: self.client_timeout,
            write: self.client_timeout,
            idle: self.idle_timeout,
            drain_delay: self.drain_delay,
            drain: self.drain_timeout,
            ..Limits::default()
        }
    }

    fn config(
        &self,
        metrics: &Arc<Metrics>,
        reload: watch::Sender<()>,
        background: &mut Background,
    ) -> anyhow::Result<Arc<ArcSwap<Config>>> {
        metrics.config_loaded();
        let Some(path) = &self.config else {
            return Ok(Arc::new(ArcSwap::from_pointee(Config::default())));
        };
        let watcher = ConfigWatcher::start(path.clone())?;
        let config = watcher.current();
        let metrics = Arc::clone(metrics);
        background.start(watcher.run(self.reload_interval, move |event| match event {
            ConfigEvent::Reloaded => {
                metrics.config_loaded();
                reload.send_replace(());
                info!("configuration reloaded");
            }
            ConfigEvent::Failed(error) => {
                metrics.config_failed();
                warn!(error, "configuration can't be used; the last good one stays in use");
            }
            ConfigEvent::Recovered => info!("the configuration file is again what is in use"),
        }));
        Ok(config)
    }
}
