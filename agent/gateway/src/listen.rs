//! Accepts connections, with TLS for agents and without for probes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

/// The limit of open connections; each belongs to an agent with a fault to report.
const MAX_CONNECTIONS: usize = 4096;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for the head of each request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The lifetime of a connection.
const MAX_LIFETIME: Duration = Duration::from_mins(2);
/// The delay after a failed accept, as when file descriptors are exhausted.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);
/// hyper's smallest buffer.
const BUFFER: usize = 8 << 10;

/// Serves `router` until `stop`, then drains requests in flight for at most `drain`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    stop: impl Future<Output = ()>,
    drain: Duration,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = Arc::new(GracefulShutdown::new());
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "accepting a connection failed");
                sleep(ACCEPT_DELAY).await;
                continue;
            }
        };
        // Beyond the limit the connection is closed, and the agent sends directly.
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let (acceptor, router, watcher) = (acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _slot = slot;
            if timeout(MAX_LIFETIME, handle_connection(stream, acceptor, router, watcher)).await.is_err() {
                debug!("closed a connection at its maximum lifetime");
            }
        });
    }
    drop(listener);
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = timeout(drain, graceful.shutdown()).await;
    }
}

async fn handle_connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Responses are small and not followed by more data.
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => serve_http(stream, router, watcher).await,
        Some(acceptor) => match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => serve_http(stream, router, watcher).await,
            Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
            Err(_) => debug!("TLS handshake timed out"),
        },
    }
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "connection failed");
    }
}
