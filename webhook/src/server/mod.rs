//! The HTTPS server: reviews on one port, health and metrics on another.

mod body;
mod deadlines;
mod metrics;
mod mutate;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::get;
use prometheus_client::registry::Registry;
use swansong_runtime::http::{self, BindError, ConnectionMetrics, Health, Tls, bind, encode};
use swansong_runtime::log_limiter::LogLimiter;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use tracing::{info, warn};

pub use self::metrics::Metrics;

use self::body::BodyLimits;
use self::mutate::Shared;
use crate::config::Config;
use crate::ready_nodes::ReadyNodes;

/// Log lines per second, for reviews that weren't processed and for those with warnings each.
const LOG_LINES: u32 = 20;

/// The certificate chain that is served, as PEM; `None` while there is none.
pub type ServedChain = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Limits on what clients may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Limits of connections; each carries one request at a time.
    pub connections: http::Limits,
    /// Size of a review in bytes.
    pub body: u64,
    /// Memory for all bodies larger than 16 KiB, in bytes.
    pub large_bodies: u64,
    /// Time for a review's body to arrive; half of the API server's timeout if that is shorter.
    pub review: Duration,
    /// Time from SIGTERM until connections are closed, so that the cluster notices that this replica is unready.
    pub drain_delay: Duration,
    /// Time for requests in flight after that.
    pub drain: Duration,
}

/// The parts of a [`Server`].
pub struct Parts {
    /// Address for reviews.
    pub listen: SocketAddr,
    /// Address for health and metrics.
    pub health_listen: SocketAddr,
    /// TLS for `listen`.
    pub tls: Tls,
    /// The certificate chain that is served.
    pub served_chain: ServedChain,
    /// The configuration in use.
    pub config: watch::Receiver<Config>,
    /// Whether there are nodes that a job may be made to require.
    pub ready_nodes: watch::Receiver<ReadyNodes>,
    /// Metrics of reviews.
    pub metrics: Arc<Metrics>,
    /// Everything that `/metrics` shows; the server adds its connections.
    pub registry: Registry,
    /// Limits on what clients may use.
    pub limits: Limits,
}

/// A server whose ports are open.
#[derive(Debug)]
pub struct Server {
    /// Address for reviews, with the port that was chosen.
    pub address: SocketAddr,
    /// Address for health and metrics, with the port that was chosen.
    pub health_address: SocketAddr,
    draining: Arc<AtomicBool>,
    limits: Limits,
    reviews: http::Server,
    health: http::Server,
}

impl Server {
    /// Opens both ports.
    pub async fn bind(parts: Parts) -> Result<Self, BindError> {
        let Parts { served_chain, config, ready_nodes, metrics, mut registry, limits, .. } = parts;
        let (listener, address) = bind(parts.listen).await?;
        let (health_listener, health_address) = bind(parts.health_listen).await?;
        let connection_metrics = ConnectionMetrics::register(&mut registry);
        let draining = Arc::new(AtomicBool::new(false));
        let bodies = BodyLimits::new(&limits, Arc::clone(&metrics));
        let log_limiter = || LogLimiter::new(LOG_LINES, Duration::from_secs(1));
        let shared = Shared {
            config,
            ready_nodes,
            metrics,
            bodies,
            review_timeout: limits.review,
            draining: Arc::clone(&draining),
            unprocessed_log: log_limiter(),
            warnings_log: log_limiter(),
        };
        let reviews = http::Server {
            listener,
            tls: Some(parts.tls),
            router: mutate::router(Arc::new(shared)),
            limits: limits.connections,
            metrics: connection_metrics,
        };
        let is_draining = Arc::clone(&draining);
        // A restart wouldn't bring a certificate, so only readiness depends on it.
        let shown_chain = Arc::clone(&served_chain);
        let ready = move || match (is_draining.load(Relaxed), served_chain()) {
            (true, _) => Err("draining".to_owned()),
            (false, None) => Err("no certificate yet".to_owned()),
            (false, Some(_)) => Ok(()),
        };
        // What every client of the other port sees, so that the caBundle can be compared without the Secret.
        let certificate = get(async move || shown_chain().ok_or(StatusCode::SERVICE_UNAVAILABLE));
        let health = http::Server {
            listener: health_listener,
            tls: None,
            router: Health { ready: Box::new(ready), ..Health::always(move || encode(&registry)) }
                .router()
                .route("/certificate", certificate),
            limits: http::Limits::HEALTH,
            metrics: ConnectionMetrics::default(),
        };
        Ok(Self { address, health_address, draining, limits, reviews, health })
    }

    /// Serves from `ready`, when there is a certificate, until `stop`.
    ///
    /// Before `ready`, connections wait in the kernel's queue: a replica that was killed has its certificate again before
    /// the cluster notices.
    ///
    /// On `stop` the server first becomes unready and serves on for the drain delay, so that the cluster sends its
    /// requests elsewhere. Then it accepts no connections and completes the requests in flight.
    pub async fn run(self, ready: impl Future<Output = ()> + Send + 'static, stop: impl Future<Output = ()>) {
        let Self { draining, limits, reviews, health, .. } = self;
        let (stop_reviews, mut stopped) = oneshot::channel::<()>();
        let drain = limits.drain;
        let reviews = tokio::spawn(async move {
            tokio::select! {
                () = ready => {}
                _ = &mut stopped => return true,
            }
            let stopped = async { drop(stopped.await) };
            reviews.run(stopped, drain).await
        });
        let health = tokio::spawn(health.run(std::future::pending(), Duration::ZERO));
        stop.await;
        draining.store(true, Relaxed);
        info!(delay = ?limits.drain_delay, "draining");
        sleep(limits.drain_delay).await;
        info!("closing connections");
        drop(stop_reviews);
        if !reviews.await.unwrap_or_default() {
            warn!(after = ?drain, "closing connections with requests in flight");
        }
        health.abort();
        info!("stopped");
    }
}
