//! The HTTPS server: limits, shutdown in good order, health and metrics.

mod body;
mod health;
mod histogram;
mod listen;
mod metrics;
mod mutate;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

pub use self::health::HasCertificate;
pub use self::metrics::{CertificateEvent, CertificateMetrics, Metrics};

use self::body::BodyLimits;
use self::health::Health;
use self::listen::{Handshake, Port};
use self::mutate::Shared;
use crate::config::Config;

/// Connections to the health port; probes and scrapes need a few.
const HEALTH_CONNECTIONS: usize = 256;

/// Time without a request on the health port: whoever just holds connections there keeps the kubelet's probes out.
const HEALTH_IDLE: Duration = Duration::from_secs(10);

/// Bounds on what clients may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; one carries one request at a time.
    pub connections: usize,
    /// Size of a review. The API server's own limit on a request is 3 MiB, of which a review holds up to two copies.
    pub body: u64,
    /// Memory for bodies beyond 64 KiB, all together.
    pub large_bodies: u64,
    /// How long a large body waits for others to be done.
    pub queue: Duration,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for a whole body to arrive.
    pub body_time: Duration,
    /// Time without a whole request head. Longer than the 90 s after which the API server itself closes an idle
    /// connection: whoever closes first must not be us, as a request may be on its way then.
    pub idle: Duration,
    /// Time from the signal to stop until connections are closed: the cluster has to learn first that this replica
    /// isn't ready any more.
    pub drain_delay: Duration,
    /// Time for what is in flight after that.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            body: 8 << 20,
            large_bodies: 64 << 20,
            queue: Duration::from_secs(1),
            handshake: Duration::from_secs(5),
            body_time: Duration::from_secs(5),
            idle: Duration::from_mins(2),
            drain_delay: Duration::from_secs(5),
            drain: Duration::from_secs(10),
        }
    }
}

/// What a server is made of.
pub struct Parts {
    /// Where reviews are answered.
    pub listen: SocketAddr,
    /// Where health and metrics are told.
    pub health_listen: SocketAddr,
    /// TLS for `listen`.
    pub tls: Arc<rustls::ServerConfig>,
    /// Whether there is a certificate to serve with.
    pub has_certificate: HasCertificate,
    /// The configuration, now and later.
    pub config: Arc<ArcSwap<Config>>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Bounds.
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

/// An address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{address} can't be listened on: {problem}")]
pub struct BindError {
    /// The address asked for.
    pub address: SocketAddr,
    /// What the system said.
    pub problem: io::Error,
}

/// A server with its ports open.
pub struct Server {
    address: SocketAddr,
    health_address: SocketAddr,
    draining: Arc<AtomicBool>,
    limits: Limits,
    main: Port,
    health: Port,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .field("health_address", &self.health_address)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens both ports.
    pub async fn bind(parts: Parts) -> Result<Self, BindError> {
        let Parts { listen, health_listen, tls, has_certificate, config, metrics, limits } = parts;
        let (listener, address) = open(listen).await?;
        let (health_listener, health_address) = open(health_listen).await?;
        let draining = Arc::new(AtomicBool::new(false));
        let budget = usize::try_from(limits.large_bodies.max(limits.body).div_ceil(1 << 10))
            .unwrap_or(Semaphore::MAX_PERMITS);
        let shared = Shared {
            config,
            metrics: Arc::clone(&metrics),
            limits: BodyLimits {
                most: limits.body,
                patience: limits.body_time,
                queue: limits.queue,
                budget: Arc::new(Semaphore::new(budget)),
            },
            draining: Arc::clone(&draining),
        };
        let main = Port {
            listener,
            tls: Some(Handshake { acceptor: TlsAcceptor::from(tls), patience: limits.handshake }),
            router: mutate::router(Arc::new(shared)),
            connections: Arc::new(Semaphore::new(limits.connections)),
            idle: limits.idle,
            metrics: Arc::clone(&metrics),
        };
        let health =
            Health { metrics: Arc::clone(&metrics), draining: Arc::clone(&draining), has_certificate };
        let health = Port {
            listener: health_listener,
            tls: None,
            router: health::router(Arc::new(health)),
            connections: Arc::new(Semaphore::new(HEALTH_CONNECTIONS)),
            idle: HEALTH_IDLE,
            metrics,
        };
        Ok(Self { address, health_address, draining, limits, main, health })
    }

    /// Where reviews are answered, with the port that was chosen.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where health and metrics are told, with the port that was chosen.
    pub const fn health_address(&self) -> SocketAddr {
        self.health_address
    }

    /// Serves until `stop`, and ends in good order: unready first and still serving, so that the cluster sends its
    /// requests elsewhere; then no new connections; then, when what is in flight is answered, no connections.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { draining, limits, main, health, .. } = self;
        let (stop_main, stopped_main) = oneshot::channel();
        let (stop_health, stopped_health) = oneshot::channel();
        let mut main = tokio::spawn(main.serve(stopped_main));
        let health = tokio::spawn(health.serve(stopped_health));
        stop.await;
        draining.store(true, Relaxed);
        info!(delay = ?limits.drain_delay, "draining");
        sleep(limits.drain_delay).await;
        info!("closing connections");
        // A receiver that is gone has stopped already.
        let _ = stop_main.send(());
        if timeout(limits.drain, &mut main).await.is_err() {
            warn!(after = ?limits.drain, "connections were still busy and are cut");
            main.abort();
        }
        let _ = stop_health.send(());
        health.abort();
        info!("stopped");
    }
}

async fn open(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |problem| BindError { address, problem };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let actual = listener.local_addr().map_err(failed)?;
    Ok((listener, actual))
}
