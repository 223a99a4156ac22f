//! Connections: with TLS for agents, without for health.

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

/// Open connections at most; each is of an agent that has something to tell.
const CONNECTIONS: usize = 4096;
/// Time for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time for the head of a request, the first one included.
const HEAD: Duration = Duration::from_secs(10);
/// Time of a connection, whatever happens on it.
const LIFE: Duration = Duration::from_mins(2);
/// The pause after an accept failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The least that hyper buffers.
const BUFFER: usize = 8 << 10;

/// Serves `router` until `stop`, and then what is in flight for `drain` longer.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    stop: impl Future<Output = ()>,
    drain: Duration,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
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
                warn!(%error, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Whoever finds no place is turned away at once and sends by itself.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (acceptor, router, watcher) = (acceptor.clone(), router.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _place = place;
            if timeout(LIFE, converse(stream, acceptor, router, watcher)).await.is_err() {
                debug!("a connection lasted too long");
            }
        });
    }
    drop(listener);
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = timeout(drain, graceful.shutdown()).await;
    }
}

async fn converse(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Answers are small and nothing follows them.
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => speak(stream, router, watcher).await,
        Some(acceptor) => match timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => speak(stream, router, watcher).await,
            Ok(Err(error)) => debug!(%error, "a handshake failed"),
            Err(_) => debug!("a handshake took too long"),
        },
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "a connection broke");
    }
}
