//! `swansong webhook`: the admission server of a cluster.

mod background;
mod certificate;
mod nodes;
mod open_files;
mod reset_config;
mod rotation;
mod sidecars;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Context;
use prometheus_client::registry::Registry;
use swansong_certs::{CertificateMetrics, Observer, Resolver};
use swansong_runtime::config::ConfigWatcher;
use swansong_runtime::http::{self, Timeouts, Tls};
use swansong_webhook::config::Config;
use swansong_webhook::ready_nodes::ReadyNodes;
use swansong_webhook::server::{Limits, Metrics, Parts, Server};
use tokio::sync::watch;
use tracing::info;

use self::background::Background;
use self::certificate::Certificate;
use self::nodes::ReadyNodePoller;
use self::reset_config::ResetConfig;
use super::signals::Signals;
use crate::logging::Logging;

/// Names the webhook in requests to the API server.
const USER_AGENT: &str = "swansong-webhook";

/// One worker answers tens of thousands of reviews per second; more than this would only cost memory.
const MAX_WORKERS: usize = 4;

/// The API server limits a request to 3 MiB, and a review holds up to two copies of it.
const MAX_REVIEW_BYTES: u64 = 8 << 20;

/// Connections in the TLS handshake, in addition to the open ones.
const MAX_HANDSHAKES: usize = 1024;

/// For clients whose TLS is too old.
const TLS_VERSION_ADVICE: &str = "--tls-min-version 1.2 admits TLS 1.2";

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
    /// Address for /livez, /readyz, /metrics and /certificate, without TLS
    #[arg(long, env = "SWANSONG_HEALTH_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8080")]
    health_listen: SocketAddr,
    #[command(flatten)]
    certificate: Certificate,
    /// How often the configuration and certificate files are checked
    #[arg(long, env = "SWANSONG_RELOAD_INTERVAL", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    reload_interval: Duration,
    /// How long to serve on after SIGTERM, while unready
    #[arg(long, env = "SWANSONG_DRAIN_DELAY", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    drain_delay: Duration,
    /// How long requests in flight may take after that
    #[arg(long, env = "SWANSONG_DRAIN_TIMEOUT", value_name = "TIME", default_value = "10s",
          value_parser = humantime::parse_duration)]
    drain_timeout: Duration,
    /// How long a review may take to arrive; half of the API server's timeout if that is shorter
    #[arg(long, env = "SWANSONG_REVIEW_TIMEOUT", value_name = "TIME", default_value = "3s",
          value_parser = humantime::parse_duration)]
    review_timeout: Duration,
    /// How long the head of a request may take, and the client to read its response
    #[arg(long, env = "SWANSONG_CLIENT_TIMEOUT", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    client_timeout: Duration,
    /// How long a connection may be idle. Longer than the API server's 90 s, so that the API server closes first
    #[arg(long, env = "SWANSONG_IDLE_TIMEOUT", value_name = "TIME", default_value = "2m",
          value_parser = humantime::parse_duration)]
    idle_timeout: Duration,
    /// Limit of open connections; a new one evicts the one that has been idle longest
    #[arg(long, env = "SWANSONG_MAX_CONNECTIONS", value_name = "N", default_value = "1024")]
    max_connections: NonZeroUsize,
    /// Memory for all reviews larger than 16 KiB, in MiB; at least 8, the largest review
    #[arg(long, env = "SWANSONG_BODY_MEMORY", value_name = "MIB", default_value = "64")]
    body_memory: NonZeroU32,
    /// Threads that answer reviews [default: one for each core, at most 4]
    #[arg(long, env = "SWANSONG_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// How often to check whether a node is ready, if nodeReadiness is require
    #[arg(long, env = "SWANSONG_NODES_INTERVAL", value_name = "TIME", default_value = "15s", hide = true,
          value_parser = humantime::parse_duration)]
    nodes_interval: Duration,
    #[command(flatten)]
    reset_config: reset_config::Options,
    #[command(flatten)]
    logging: Logging,
}

impl Webhook {
    /// Serves until SIGTERM.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        self.logging.start();
        let workers = self.workers.map_or_else(
            || available_parallelism().map_or(1, |cores| cores.get().min(MAX_WORKERS)),
            NonZeroUsize::get,
        );
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()
            .context("the threads can't be started")?;
        let result = runtime.block_on(self.serve());
        // A poll of a file may hang with its mount.
        runtime.shutdown_background();
        result
    }

    async fn serve(self) -> anyhow::Result<()> {
        let signals = Signals::listen().context("signals can't be listened for")?;
        let mut registry = Registry::with_prefix("swansong");
        let metrics = Arc::new(Metrics::register(&mut registry));
        let certificate_metrics = CertificateMetrics::register(&mut registry);
        let reset_config_metrics =
            swansong_reset_config::Metrics::register(registry.sub_registry_with_prefix("reset_config"));
        let mut background = Background::default();
        let (config, completion) = sidecars::complete(self.config(&metrics, &mut background)?);
        background.start(completion);
        let (seen, ready_nodes) = watch::channel(ReadyNodes::default());
        let poller = ReadyNodePoller::new(config.clone(), seen, self.nodes_interval);
        background.start(poller.run());
        let reset_config =
            ResetConfig { options: self.reset_config, config: config.clone(), metrics: reset_config_metrics };
        background.start(reset_config.run());
        let resolver = Resolver::new();
        let observer: Observer = Arc::new(move |event| {
            certificate_metrics.observe(event);
            event.log();
        });
        let tls = self.certificate.tls(&resolver, &observer, self.reload_interval, &mut background)?;
        let limits = self.limits();
        open_files::raise_limit(limits.connections.connections.saturating_add(limits.connections.pending));
        let source =
            self.certificate.start(&resolver, &observer, self.reload_interval, &mut background).await?;
        let first = Arc::clone(&resolver);
        let ready = async move { first.ready().await };
        let server = Server::bind(Parts {
            listen: self.listen,
            health_listen: self.health_listen,
            tls: Tls { config: tls, version_advice: TLS_VERSION_ADVICE },
            served_chain: Arc::new(move || Some(resolver.current()?.chain_pem())),
            config,
            ready_nodes,
            metrics,
            registry,
            limits,
        })
        .await?;
        info!(
            address = %server.address,
            health_address = %server.health_address,
            certificate = source,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
        let mut failure = None;
        let stop = async {
            tokio::select! {
                () = signals.stop() => {}
                error = background.failed() => failure = Some(error),
            }
        };
        // Also drains after a failure, since other replicas take over.
        server.run(ready, stop).await;
        failure.map_or(Ok(()), Err)
    }

    fn limits(&self) -> Limits {
        let connections = http::Limits {
            connections: self.max_connections.get(),
            pending: MAX_HANDSHAKES,
            // A client that was active within the last second may be between two requests.
            min_idle: Duration::from_secs(1),
            timeouts: Timeouts {
                handshake: Duration::from_secs(5),
                idle: self.idle_timeout,
                head: self.client_timeout,
                // Reviews have separate deadlines; this one ends requests that those can't end.
                request: self.review_timeout.saturating_mul(2) + Duration::from_mins(1),
                write: self.client_timeout,
            },
        };
        Limits {
            connections,
            body: MAX_REVIEW_BYTES,
            large_bodies: u64::from(self.body_memory.get()) << 20,
            review: self.review_timeout,
            drain_delay: self.drain_delay,
            drain: self.drain_timeout,
        }
    }

    fn config(
        &self,
        metrics: &Metrics,
        background: &mut Background,
    ) -> anyhow::Result<watch::Receiver<Config>> {
        metrics.config.record_load();
        let Some(path) = &self.config else {
            return Ok(watch::channel(Config::default()).1);
        };
        let watcher = ConfigWatcher::start(path, Config::parse)?;
        let config = watcher.subscribe();
        background.start(watcher.run(self.reload_interval, metrics.config.clone()));
        Ok(config)
    }
}
