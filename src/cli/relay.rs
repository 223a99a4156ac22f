//! `swansong relay`: takes faults from agents and sends them to ClusterD in full batches.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use swansong_certs::{
    Event, FilePair, FileWatcher, POLL_INTERVAL, Resolver, SystemClock, TlsOptions, server_config,
};

use swansong_clusterd_client::ADDRESS;
use swansong_clusterd_client::GrpcClient;
use swansong_gateway::budget::Budget;
use swansong_gateway::http::{Shared, health, router};
use swansong_gateway::listen::serve;
use swansong_gateway::metrics::Metrics;
use swansong_gateway::pump::Pump;
use swansong_gateway::review::{ApiServer, Doorkeeper};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{info, warn};

use super::signals::Signals;
use crate::logging::Logging;

/// Take faults from agents over HTTPS and send them to ClusterD in full batches, until SIGTERM
///
/// ClusterD takes one message a second from all agents together. With more than a few hundred nodes a failure that
/// hits many of them needs this relay; without it, agents send by themselves.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Relay {
    /// Address for agents (POST /v1/faults)
    #[arg(long, env = "SWANSONG_RELAY_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8444")]
    listen: SocketAddr,
    /// Address for /livez, /readyz and /metrics, without TLS
    #[arg(long, env = "SWANSONG_RELAY_HEALTH_LISTEN", value_name = "ADDR", default_value = "0.0.0.0:8082")]
    health_listen: SocketAddr,
    /// Certificate chain, PEM; reloaded when it changes
    #[arg(long, env = "SWANSONG_TLS_CERT", value_name = "FILE")]
    tls_cert: PathBuf,
    /// Private key, PEM
    #[arg(long, env = "SWANSONG_TLS_KEY", value_name = "FILE")]
    tls_key: PathBuf,
    /// ClusterD
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
    /// How many relays share what ClusterD takes
    #[arg(long, env = "SWANSONG_RELAY_REPLICAS", value_name = "N", default_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=50))]
    replicas: u32,
    /// How long a request waits for ClusterD
    #[arg(long, env = "SWANSONG_RELAY_PATIENCE", value_name = "TIME", default_value = "20s",
          value_parser = humantime::parse_duration)]
    patience: Duration,
    /// How long a message to ClusterD may take
    #[arg(long, env = "SWANSONG_CLUSTERD_TIMEOUT", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    clusterd_timeout: Duration,
    #[command(flatten)]
    logging: Logging,
}

impl Relay {
    /// Serves until it is told to stop.
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
            FilePair::new(&self.tls_cert, &self.tls_key),
            Arc::clone(&resolver),
            Arc::new(SystemClock),
            Arc::new(tell),
        );
        certificate.poll()?;
        let tls = server_config(
            resolver,
            &TlsOptions { alpn: vec![b"http/1.1".to_vec()], ..TlsOptions::default() },
        )?;
        let client = swansong_runtime::kube::client("swansong-relay").await.map_err(|problem| {
            anyhow!("the API server has to say whose the tokens of agents are, but {problem}; run in a cluster, or set KUBECONFIG")
        })?;
        let metrics = Arc::new(Metrics::default());
        let pump = Arc::new(Pump::new(self.patience, Arc::clone(&metrics)));
        let door = Doorkeeper::new(ApiServer::new(client), namespace, name);
        let agents = router(Shared { door, pump: Arc::clone(&pump), metrics: Arc::clone(&metrics) });
        let listener = open(self.listen).await?;
        let health_listener = open(self.health_listen).await?;
        info!(
            address = %listener.local_addr()?,
            health_address = %health_listener.local_addr()?,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
        let (stop, stopped) = watch::channel(false);
        let told = |mut stopped: watch::Receiver<bool>| async move {
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let budget = Budget::of_one_of(self.replicas, tokio::time::Instant::now());
        let sending = tokio::spawn(Arc::clone(&pump).run(clusterd, budget));
        let watching = tokio::spawn(certificate.run(POLL_INTERVAL));
        let door = serve(listener, Some(tls), agents, told(stopped.clone()), self.patience);
        let probes = serve(health_listener, None, health(metrics, pump), told(stopped), Duration::ZERO);
        let served = async { tokio::join!(door, probes) };
        let mut broken = None;
        let stopping = async {
            tokio::select! {
                () = signals.stop() => {}
                _ = sending => broken = Some(anyhow!("the sending has ended; please report this")),
                _ = watching => broken = Some(anyhow!("the watch of the certificate has ended; please report this")),
            }
            stop.send_replace(true);
        };
        tokio::join!(served, stopping);
        broken.map_or(Ok(()), Err)
    }
}

async fn open(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{address} can't be listened on"))
}

/// Tells of the certificate in the log.
fn tell(event: &Event) {
    if event.is_failure() {
        warn!(problem = %event, "certificate");
    } else {
        info!(%event, "certificate");
    }
}
