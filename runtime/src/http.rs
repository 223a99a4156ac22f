//! One HTTP/1.1 server for every port of Swansong: bounded connections, timeouts, TLS, graceful shutdown.
//!
//! HTTP/1.1 only: the API server uses nothing else for webhooks (kubernetes#75791). A connection carries one request at
//! a time, so the limit on connections also limits requests.
//!
//! - [`Server`]: accepts connections, does the TLS handshake and serves a router until it is stopped.
//! - `limiter`: how many connections there may be, and which one is evicted for a new one.
//! - `activity`: what a connection does, and whether that has taken too long.
//! - [`Health`]: the endpoints for probes and scrapes.

mod activity;
mod health;
mod limiter;
mod metrics;
mod server;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

pub use self::health::{Check, Health, encode};
pub use self::metrics::{ConnectionMetrics, GaugeGuard};
pub use self::server::{Server, Tls};

/// Limits of a [`Server`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The limit of open connections.
    pub connections: usize,
    /// Connections that are in the TLS handshake or wait for a free connection; more wait in the kernel's queue.
    pub pending: usize,
    /// At the limit of connections, one that has been idle for at least this long is evicted for a new one.
    pub min_idle: Duration,
    /// Timeouts of a connection.
    pub timeouts: Timeouts,
}

/// Timeouts of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// Without the first byte of a request.
    pub idle: Duration,
    /// From the first byte of a request's head to the last.
    pub head: Duration,
    /// From a request's head to its response.
    pub request: Duration,
    /// For the client to read its response.
    pub write: Duration,
}

impl Limits {
    /// For a port that only probes and scrapes use. A new connection evicts an idle one of the peer that has most, so that a
    /// client that opens connections can't keep the kubelet's probes out.
    pub const HEALTH: Self = Self {
        connections: 128,
        pending: 128,
        min_idle: Duration::ZERO,
        timeouts: Timeouts {
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(10),
            head: Duration::from_secs(5),
            request: Duration::from_secs(10),
            write: Duration::from_secs(5),
        },
    };
}

/// An address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("can't listen on {address}: {error}")]
pub struct BindError {
    /// The requested address.
    pub address: SocketAddr,
    /// The error of the system.
    pub error: io::Error,
}

/// Opens a port; returns its address too, in which port 0 is replaced by the chosen one.
pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |error| BindError { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let actual = listener.local_addr().map_err(failed)?;
    Ok((listener, actual))
}
