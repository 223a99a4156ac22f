//! The HTTPS server: reviews on one port, health and metrics on another.

mod body;
mod deadlines;
mod metrics;
mod mutate;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use swansong_runtime::http::{self, BindError, ConnectionMetrics, Health, Timeouts, Tls, bind, encode};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::{info, warn};

pub use self::metrics::Metrics;

use self::body::BodyLimits;
use self::mutate::Shared;
use crate::config::Config;
use crate::ready_nodes::LastSeen;

/// Whether there is a certificate to serve with.
pub type HasCertificate = Box<dyn Fn() -> bool + Send + Sync>;

/// Limits on what clients may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; each carries one request at a time.
    pub connections: usize,
    /// Connections in the TLS handshake, in addition to the open ones.
    pub handshakes: usize,
    /// Size of a review in bytes. The API server limits a request to 3 MiB, and a review holds up to two copies of it.
    pub body: u64,
    /// Memory for all bodies larger than 16 KiB, in bytes.
    pub large_bodies: u64,
    /// Timeout of a TLS handshake.
    pub handshake: Duration,
    /// Time for a review's body to arrive; half of the API server's timeout if that is shorter.
    pub review: Duration,
    /// Time without a request. Longer than the 90 s after which the API server closes an idle connection: if the webhook
    /// closed first, a request could be on its way.
    pub idle: Duration,
    /// Time from the first byte of a request's head to the last.
    pub head: Duration,
    /// Time for a client to read its response.
    pub write: Duration,
    /// Time from SIGTERM until connections are closed, so that the cluster notices that this replica is unready.
    pub drain_delay: Duration,
    /// Time for requests in flight after that.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshakes: 1024,
            body: 8 << 20,
            large_bodies: 64 << 20,
            handshake: Duration::from_secs(5),
            review: Duration::from_secs(3),
            idle: Duration::from_mins(2),
            head: Duration::from_secs(5),
            write: Duration::from_secs(5),
            drain_delay: Duration::from_secs(5),
            drain: Duration::from_secs(10),
        }
    }
}

impl Limits {
    fn of_connections(&self) -> http::Limits {
        http::Limits {
            connections: self.connections,
            pending: self.handshakes,
            // A client that was active within the last second may be between two requests.
            min_idle: Duration::from_secs(1),
            timeouts: Timeouts {
                handshake: self.handshake,
                idle: self.idle,
                head: self.head,
                // Reviews have separate deadlines; this one ends requests that those can't end.
                request: self.review.saturating_mul(2) + Duration::from_mins(1),
                write: self.write,
            },
        }
    }
}

/// The parts of a [`Server`].
pub struct Parts {
    /// Address for reviews.
    pub listen: SocketAddr,
    /// Address for health and metrics.
    pub health_listen: SocketAddr,
    /// TLS for `listen`.
    pub tls: Tls,
    /// Whether there is a certificate to serve with.
    pub has_certificate: HasCertificate,
    /// The configuration in use.
    pub config: Arc<ArcSwap<Config>>,
    /// Whether there are nodes that a job may be made to require.
    pub ready_nodes: Arc<LastSeen>,
    /// Metrics of reviews.
    pub metrics: Arc<Metrics>,
    /// Everything that `/metrics` shows; the server adds its connections.
    pub registry: Registry,
    /// Limits on what clients may use.
    pub limits: Limits,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("listen", &self.listen)
            .field("health_listen", &self.health_listen)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A server whose ports are open.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    health_address: SocketAddr,
    draining: Arc<AtomicBool>,
    limits: Limits,
    reviews: http::Server,
    health: http::Server,
}

impl Server {
    /// Opens both ports.
    pub async fn bind(parts: Parts) -> Result<Self, BindError> {
        let Parts { has_certificate, config, ready_nodes, metrics, mut registry, limits, .. } = parts;
        let (listener, address) = bind(parts.listen).await?;
        let (health_listener, health_address) = bind(parts.health_listen).await?;
        let connection_metrics = ConnectionMetrics::register(&mut registry);
        let draining = Arc::new(AtomicBool::new(false));
        let bodies = BodyLimits::new(&limits, Arc::clone(&metrics));
        let shared = Shared::new(config, ready_nodes, metrics, bodies, limits.review, Arc::clone(&draining));
        let reviews = http::Server {
            listener,
            tls: Some(parts.tls),
            router: mutate::router(Arc::new(shared)),
            limits: limits.of_connections(),
            metrics: connection_metrics,
        };
        let is_draining = Arc::clone(&draining);
        // A restart wouldn't bring a certificate, so only readiness depends on it.
        let ready = move || match (is_draining.load(Relaxed), has_certificate()) {
            (true, _) => Err("draining".to_owned()),
            (false, false) => Err("no certificate yet".to_owned()),
            (false, true) => Ok(()),
        };
        let health = http::Server {
            listener: health_listener,
            tls: None,
            router: Health { ready: Box::new(ready), ..Health::always(move || encode(&registry)) }.router(),
            limits: http::Limits::HEALTH,
            metrics: ConnectionMetrics::default(),
        };
        Ok(Self { address, health_address, draining, limits, reviews, health })
    }

    /// Address for reviews, with the port that was chosen.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address for health and metrics, with the port that was chosen.
    pub const fn health_address(&self) -> SocketAddr {
        self.health_address
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
