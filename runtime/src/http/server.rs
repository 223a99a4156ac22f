use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

use super::Limits;
use super::limiter::ConnectionLimiter;
use super::metrics::{Closed, ConnectionMetrics, GaugeGuard, HandshakeFailure};
use super::stream::TrackedStream;
use crate::log_limiter::LogLimiter;

/// Delay after an accept failed for lack of resources, which closing connections release.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// Most input that is buffered for a connection, including heads of requests. A TLS record isn't larger.
const BUFFER: usize = 16 << 10;

/// Timeout of handshakes while more than three quarters of the pending connections are taken.
const HANDSHAKE_TIMEOUT_UNDER_LOAD: Duration = Duration::from_secs(2);

/// How a [`Server`] does TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Certificate and versions for new connections.
    pub config: Arc<ArcSwap<ServerConfig>>,
    /// Advice for the log when a client supports only older versions, as a flag that admits them.
    pub version_advice: &'static str,
}

/// A server for one port.
#[derive(Debug)]
pub struct Server {
    /// The open port.
    pub listener: TcpListener,
    /// TLS; without it the port serves plain HTTP.
    pub tls: Option<Tls>,
    /// The handlers of requests.
    pub router: Router,
    /// Limits on what clients may use.
    pub limits: Limits,
    pub metrics: ConnectionMetrics,
}

impl Server {
    /// Serves until `stop` completes. Then the port is closed, requests in flight are completed, and connections are
    /// closed as soon as they are idle. Returns whether all of them ended within `drain`.
    pub async fn run(self, stop: impl Future<Output = ()>, drain: Duration) -> bool {
        let Self { listener, tls, router, limits, metrics } = self;
        let mut http = http1::Builder::new();
        // The limiter enforces timeouts; hyper's would count an idle connection as a slow head.
        http.header_read_timeout(None).max_buf_size(BUFFER);
        let limiter = ConnectionLimiter::new(&limits);
        let version_log = LogLimiter::new(1, Duration::from_mins(1));
        let shared = Arc::new(Shared { tls, http, router, limiter, limits, metrics, version_log });
        let graceful = GracefulShutdown::new();
        let pending = Arc::new(Semaphore::new(limits.pending));
        let mut timeouts = pin!(shared.limiter.enforce_timeouts());
        let mut stop = pin!(stop);
        loop {
            let next = async {
                // At the limit, connections wait in the kernel's queue, where they cost nothing.
                let permit = Arc::clone(&pending).acquire_owned().await;
                (permit, accept(&listener).await)
            };
            let (permit, (stream, peer)) = tokio::select! {
                () = &mut stop => break,
                never = &mut timeouts => match never {},
                next = next => next,
            };
            let Ok(permit) = permit else { break };
            let is_loaded = pending.available_permits() < limits.pending / 4;
            let watcher = graceful.watcher();
            let connection = PendingConnection { shared: Arc::clone(&shared), permit, peer, watcher };
            tokio::spawn(connection.serve(stream, is_loaded));
        }
        drop(listener);
        tokio::select! {
            never = &mut timeouts => match never {},
            drained = timeout(drain, graceful.shutdown()) => drained.is_ok(),
        }
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Otherwise a response may wait 40 ms for the client's acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "can't set TCP_NODELAY");
                }
                return (stream, peer);
            }
            Err(error) if is_by_peer(&error) => debug!(%error, "connection ended before it was accepted"),
            Err(error) => {
                warn!(%error, "can't accept connections");
                sleep(ACCEPT_DELAY).await;
            }
        }
    }
}

fn is_by_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

struct Shared {
    tls: Option<Tls>,
    http: http1::Builder,
    router: Router,
    limiter: ConnectionLimiter,
    limits: Limits,
    metrics: ConnectionMetrics,
    version_log: LogLimiter,
}

/// A connection that hasn't completed its handshake or has no slot yet. Its permit isn't a slot: clients that connect and
/// don't complete the handshake take nothing from those that did.
struct PendingConnection {
    shared: Arc<Shared>,
    permit: OwnedSemaphorePermit,
    peer: SocketAddr,
    watcher: Watcher,
}

impl PendingConnection {
    async fn serve(self, stream: TcpStream, is_loaded: bool) {
        self.shared.metrics.accepted.inc();
        match &self.shared.tls {
            None => self.serve_http(stream).await,
            Some(tls) => {
                if let Some(stream) = self.handshake(tls, stream, is_loaded).await {
                    self.serve_http(stream).await;
                }
            }
        }
    }

    async fn handshake(&self, tls: &Tls, stream: TcpStream, is_loaded: bool) -> Option<TlsStream<TcpStream>> {
        let Shared { limits, metrics, version_log, .. } = &*self.shared;
        let limit = limits.timeouts.handshake;
        let limit = if is_loaded { limit.min(HANDSHAKE_TIMEOUT_UNDER_LOAD) } else { limit };
        let _in_progress = GaugeGuard::new(&metrics.handshakes);
        let error = match timeout(limit, TlsAcceptor::from(tls.config.load_full()).accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error,
            Err(_) => {
                metrics.handshake_failed(HandshakeFailure::Timeout);
                debug!(peer = %self.peer, ?limit, "TLS handshake timed out");
                return None;
            }
        };
        let cause = HandshakeFailure::of(&error);
        metrics.handshake_failed(cause);
        if cause == HandshakeFailure::TlsVersion
            && let Some(suppressed) = version_log.admit()
        {
            let (peer, advice) = (self.peer, tls.version_advice);
            warn!(%peer, %error, advice, suppressed, "client rejected, it supports TLS 1.2 at most");
        } else {
            debug!(peer = %self.peer, %error, "TLS handshake failed");
        }
        None
    }

    async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { shared, permit, peer, watcher } = self;
        let Some(slot) = shared.limiter.acquire(peer.ip()).await else {
            shared.metrics.closed(Closed::Limit);
            debug!("connection closed at the limit of connections");
            return;
        };
        drop(permit);
        let _open = GaugeGuard::new(&shared.metrics.open);
        let activity = &slot.activity;
        let router = TowerToHyperService::new(shared.router.clone());
        let service = service_fn({
            let activity = Arc::clone(activity);
            move |request| {
                activity.request_started();
                let response = router.call(request);
                let activity = Arc::clone(&activity);
                async move {
                    let response = response.await;
                    activity.response_ready();
                    response
                }
            }
        });
        let stream = TrackedStream::new(stream, Arc::clone(activity));
        let connection = shared.http.serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            end = watcher.watch(connection) => if let Err(error) = end {
                debug!(%error, "connection failed");
            },
            () = activity.close_requested() => {}
        }
        if let Some(cause) = activity.closing() {
            shared.metrics.closed(cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::ErrorKind;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::http::bind;

    async fn connect(address: SocketAddr, head: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(head).await.expect("written");
        stream
    }

    #[tokio::test]
    async fn held_connections_of_a_health_port_keep_no_probe_out() {
        let (listener, address) = bind("127.0.0.1:0".parse().expect("an address")).await.expect("bound");
        let server = Server {
            listener,
            tls: None,
            router: Router::new().route("/livez", get(async || "ok\n")),
            limits: Limits::HEALTH,
            metrics: ConnectionMetrics::default(),
        };
        let open = server.metrics.open.clone();
        let server = tokio::spawn(server.run(pending(), Duration::ZERO));
        let mut held = Vec::new();
        for number in 1..=i64::try_from(Limits::HEALTH.connections).expect("small") {
            held.push(connect(address, b"GET /livez HT").await);
            while open.get() < number {
                tokio::task::yield_now().await;
            }
        }
        let mut probe =
            connect(address, b"GET /livez HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").await;
        let mut response = String::new();
        probe.read_to_string(&mut response).await.expect("a response");
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let mut closed = 0;
        for stream in &mut held {
            match stream.try_read(&mut [0; 1]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => closed += 1,
            }
        }
        assert_eq!(closed, 1, "one connection was evicted, and none expired");
        server.abort();
    }
}
