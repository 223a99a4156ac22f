//! The HTTPS server: limits, shutdown in good order, health and metrics.

mod body;
mod health;
mod histogram;
mod listen;
mod metrics;
mod mutate;
mod pace;
mod patience;
mod places;
mod quota;

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
pub use self::metrics::Metrics;

use self::body::Bodies;
use self::health::Health;
use self::listen::{Handshake, Port};
use self::mutate::Shared;
use self::pace::Times;
use self::places::Places;
use crate::config::Config;
use crate::ready_nodes::LastSeen;

/// Connections to the health port; probes and scrapes need a few.
const HEALTH_CONNECTIONS: usize = 256;

/// Times on the health port, where nobody has reason to keep a connection.
const HEALTH_TIMES: Times =
    Times { idle: Duration::from_secs(10), head: Duration::from_secs(5), write: Duration::from_secs(5) };

/// Bounds on what clients may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; one carries one request at a time.
    pub connections: usize,
    /// Connections that haven't shaken hands yet, beside those.
    pub handshakes: usize,
    /// Size of a review. The API server's own limit on a request is 3 MiB, of which a review holds up to two copies.
    pub body: u64,
    /// Memory for bodies beyond 16 KiB, all together, in bytes.
    pub large_bodies: u64,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time from the head of a review until it is there whole; half of the API server's own time if that is less.
    pub review: Duration,
    /// Time without a request. Longer than the 90 s after which the API server itself closes an idle connection:
    /// whoever closes first must not be us, as a request may be on its way then.
    pub idle: Duration,
    /// Time from the first byte of a request's head to its last.
    pub head: Duration,
    /// Time for a client to read its answer.
    pub write: Duration,
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
    /// Whether there are nodes that a job may be made to require, now and later.
    pub ready_nodes: Arc<LastSeen>,
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
        let Parts { listen, health_listen, tls, has_certificate, config, ready_nodes, metrics, limits } =
            parts;
        let (listener, address) = open(listen).await?;
        let (health_listener, health_address) = open(health_listen).await?;
        let draining = Arc::new(AtomicBool::new(false));
        let room = usize::try_from(limits.large_bodies.max(limits.body).div_ceil(1 << 10))
            .unwrap_or(Semaphore::MAX_PERMITS);
        let shared = Shared::new(
            config,
            ready_nodes,
            Arc::clone(&metrics),
            Bodies { most: limits.body, room: Arc::new(Semaphore::new(room)), metrics: Arc::clone(&metrics) },
            limits.review,
            Arc::clone(&draining),
        );
        let main = Port {
            listener,
            tls: Some(Handshake { acceptor: TlsAcceptor::from(tls), patience: limits.handshake }),
            router: mutate::router(Arc::new(shared)),
            doors: limits.handshakes,
            places: Arc::new(Places::new(limits.connections)),
            times: Times { idle: limits.idle, head: limits.head, write: limits.write },
            metrics: Arc::clone(&metrics),
        };
        let health =
            Health { metrics: Arc::clone(&metrics), draining: Arc::clone(&draining), has_certificate };
        let health = Port {
            listener: health_listener,
            tls: None,
            router: health::router(Arc::new(health)),
            doors: HEALTH_CONNECTIONS,
            places: Arc::new(Places::new(HEALTH_CONNECTIONS)),
            times: HEALTH_TIMES,
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

    /// Serves from `ready`, when there is a certificate, until `stop`.
    ///
    /// Before that connections wait in the kernel's queue: a replica that was killed is back with a certificate in no
    /// time, while the cluster may not even have noticed that it was gone.
    ///
    /// It ends in good order: unready first and still serving, so that the cluster sends its requests elsewhere; then
    /// no new connections; then, when what is in flight is answered, no connections.
    pub async fn run(self, ready: impl Future<Output = ()> + Send + 'static, stop: impl Future<Output = ()>) {
        let Self { draining, limits, main, health, .. } = self;
        let (stop_main, mut stopped_main) = oneshot::channel();
        let (stop_health, stopped_health) = oneshot::channel();
        let mut main = tokio::spawn(async move {
            tokio::select! {
                () = ready => main.serve(stopped_main).await,
                _ = &mut stopped_main => {}
            }
        });
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
