//! `swansong relay`: runs the gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use swansong_certs::{Event, FilePair, FileWatcher, POLL_INTERVAL, Resolver, server_config};
use swansong_clusterd_client::ADDRESS;
use swansong_clusterd_client::GrpcClient;
use swansong_gateway::auth::TokenAuthenticator;
use swansong_gateway::dispatcher::Dispatcher;
use swansong_gateway::http::{health_router, router};
use swansong_gateway::metrics::Metrics;
use swansong_gateway::rate_limit::RateLimiter;
use swansong_runtime::http::{ConnectionMetrics, Limits, Server, Tls, bind};
use tokio::sync::watch;
use tracing::info;

use super::signals::Signals;
use crate::logging::Logging;

/// Run the gateway: accept faults from agents over HTTPS and send them to ClusterD in full batches, until SIGTERM
///
/// ClusterD accepts one message a second from all agents together. With more than a few hundred nodes, a failure that
/// hits many of them needs this gateway; without it, agents send directly.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Relay {
    /// Address for agents (POST /v1/faults)
    #[arg(long, env = "SWANSONG_GATEWAY_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8444")]
    listen: SocketAddr,
    /// Address for /livez, /readyz and /metrics, without TLS
    #[arg(long, env = "SWANSONG_GATEWAY_HEALTH_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8082")]
    health_listen: SocketAddr,
    /// Certificate chain, PEM; reloaded when it changes
    #[arg(long, env = "SWANSONG_TLS_CERT", value_name = "FILE")]
    tls_cert: PathBuf,
    /// Private key, PEM
    #[arg(long, env = "SWANSONG_TLS_KEY", value_name = "FILE")]
    tls_key: PathBuf,
    /// Address of ClusterD
    #[arg(long, env = "SWANSONG_CLUSTERD", value_name = "URL", default_value = ADDRESS)]
    clusterd: String,
    /// Service account of the agents
    #[arg(
        long,
        env = "SWANSONG_AGENT_ACCOUNT",
        value_name = "NAMESPACE/NAME",
        default_value = "swansong-agent/swansong-agent"
    )]
    agent_account: String,
    /// Number of gateways that share the rate limit of ClusterD
    #[arg(long, env = "SWANSONG_GATEWAY_REPLICAS", value_name = "N", default_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=50))]
    replicas: u32,
    /// Timeout for a request of an agent
    #[arg(long, env = "SWANSONG_GATEWAY_REQUEST_TIMEOUT", value_name = "TIME", default_value = "20s",
          value_parser = humantime::parse_duration)]
    request_timeout: Duration,
    /// Timeout for a message to ClusterD
    #[arg(long, env = "SWANSONG_CLUSTERD_TIMEOUT", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    clusterd_timeout: Duration,
    #[command(flatten)]
    logging: Logging,
}

impl Relay {
    /// Serves until SIGTERM.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        self.logging.start();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.context("the threads can't be started")?;
        let result = runtime.block_on(self.serve());
        runtime.shutdown_background();
        result
    }

    async fn serve(self) -> anyhow::Result<()> {
        let signals = Signals::listen().context("signals can't be listened for")?;
        let (namespace, name) = self.agent_account.split_once('/').ok_or_else(|| {
            anyhow!("--agent-account {}: it has the form NAMESPACE/NAME", self.agent_account)
        })?;
        let clusterd = GrpcClient::new(&self.clusterd, self.clusterd_timeout)?;
        let resolver = Resolver::new();
        let mut certificate = FileWatcher::new(
            FilePair { certificate: self.tls_cert.clone(), key: self.tls_key.clone() },
            Arc::clone(&resolver),
            Arc::new(SystemTime::now),
            Arc::new(Event::log),
        );
        certificate.poll()?;
        let tls = server_config(resolver, &[&rustls::version::TLS13])?;
        let client = swansong_runtime::kube::client("swansong-gateway").await.map_err(|problem| {
            anyhow!("the API server has to review the tokens of agents, but {problem}; run in a cluster, or set KUBECONFIG")
        })?;
        let metrics = Arc::new(Metrics::default());
        let dispatcher = Arc::new(Dispatcher::new(self.request_timeout, Arc::clone(&metrics)));
        let authenticator = TokenAuthenticator::new(client, namespace, name);
        let routes = router(authenticator, Arc::clone(&dispatcher), Arc::clone(&metrics));
        let (listener, address) = bind(self.listen).await?;
        let (health_listener, health_address) = bind(self.health_listen).await?;
        info!(
            %address,
            %health_address,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
        let (stop, stopped) = watch::channel(false);
        let until = |mut stopped: watch::Receiver<bool>| async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let limiter = RateLimiter::for_replicas(self.replicas);
        let dispatching = tokio::spawn(Arc::clone(&dispatcher).run(clusterd, limiter));
        let watching = tokio::spawn(certificate.run(POLL_INTERVAL));
        let server = Server {
            listener,
            tls: Some(Tls { config: tls, version_advice: "agents support TLS 1.3" }),
            router: routes,
            limits: swansong_gateway::LIMITS,
            metrics: ConnectionMetrics::default(),
        };
        let health = Server {
            listener: health_listener,
            tls: None,
            router: health_router(metrics, dispatcher),
            limits: Limits::HEALTH,
            metrics: ConnectionMetrics::default(),
        };
        let agents = server.run(until(stopped.clone()), self.request_timeout);
        let probes = health.run(until(stopped), Duration::ZERO);
        let serving = async { tokio::join!(agents, probes) };
        let mut failure = None;
        let stopping = async {
            tokio::select! {
                () = signals.stop() => {}
                _ = dispatching => failure = Some(anyhow!("the dispatcher ended; please report this")),
                _ = watching => failure = Some(anyhow!("the certificate watcher ended; please report this")),
            }
            stop.send_replace(true);
        };
        tokio::join!(serving, stopping);
        failure.map_or(Ok(()), Err)
    }
}
