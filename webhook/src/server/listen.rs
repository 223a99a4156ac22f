//! Accepting connections and carrying them to their end.
//!
//! HTTP/1.1 only: that is what the API server speaks to webhooks (kubernetes#75791), with one request at a time on a
//! connection, so that the limit on connections is a limit on requests too.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::metrics::{Held, Metrics};

/// The pause after an accept failed for want of resources, which closing connections give back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The most that is buffered of a connection's input before it is asked for, request heads included.
const BUFFER: usize = 64 << 10;

/// One port and what is behind it.
pub(super) struct Port {
    pub(super) listener: TcpListener,
    /// `None` is plain HTTP.
    pub(super) tls: Option<Handshake>,
    pub(super) router: Router,
    pub(super) connections: Arc<Semaphore>,
    /// How long a connection may be without a whole request head, between requests too.
    pub(super) idle: Duration,
    pub(super) metrics: Arc<Metrics>,
}

#[derive(Clone)]
pub(super) struct Handshake {
    pub(super) acceptor: TlsAcceptor,
    pub(super) patience: Duration,
}

impl Port {
    /// Serves until `stop` comes; then no connection is accepted any more, and those that are open end as soon as they
    /// have nothing in flight. Returns when all have ended.
    pub(super) async fn serve(self, mut stop: oneshot::Receiver<()>) {
        let Self { listener, tls, router, connections, idle, metrics } = self;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(BUFFER);
        let graceful = GracefulShutdown::new();
        loop {
            let next = async {
                // At the limit newcomers wait in the kernel's queue, where they cost nothing.
                let permit = Arc::clone(&connections).acquire_owned().await;
                (permit, accept(&listener).await)
            };
            let (permit, stream) = tokio::select! {
                _ = &mut stop => break,
                next = next => next,
            };
            let connection = Connection {
                tls: tls.clone(),
                http: http.clone(),
                service: TowerToHyperService::new(router.clone()),
                watcher: graceful.watcher(),
            };
            let metrics = Arc::clone(&metrics);
            tokio::spawn(async move {
                let _permit = permit;
                let _held = connection.tls.is_some().then(|| {
                    metrics.accepted.inc();
                    Held::of(&metrics.connections)
                });
                connection.carry(stream, &metrics).await;
            });
        }
        drop(listener);
        graceful.shutdown().await;
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it an answer may wait 40 ms for the peer's acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "TCP_NODELAY can't be set");
                }
                return stream;
            }
            Err(error) if of_the_peer(&error) => debug!(%error, "a connection ended before it was accepted"),
            Err(error) => {
                warn!(%error, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

struct Connection {
    tls: Option<Handshake>,
    http: http1::Builder,
    service: TowerToHyperService<Router>,
    watcher: Watcher,
}

impl Connection {
    async fn carry(self, stream: TcpStream, metrics: &Metrics) {
        let Some(Handshake { acceptor, patience }) = &self.tls else {
            return self.speak(stream).await;
        };
        match timeout(*patience, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.speak(stream).await,
            Ok(Err(error)) => {
                metrics.handshake_failures.inc();
                debug!(%error, "TLS handshake failed");
            }
            Err(_) => {
                metrics.handshake_failures.inc();
                debug!(?patience, "TLS handshake took too long");
            }
        }
    }

    async fn speak(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let connection = self.http.serve_connection(TokioIo::new(stream), self.service);
        if let Err(error) = self.watcher.watch(connection).await {
            debug!(%error, "connection ended early");
        }
    }
}
