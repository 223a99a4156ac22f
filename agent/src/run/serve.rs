//! Health, metrics and status, over plain HTTP/1.1.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::encoding::prometheus_text;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::status::Shared;

/// Probes and scrapes need a few.
const CONNECTIONS: usize = 64;

/// Whoever just holds a connection keeps the kubelet's probes out.
const IDLE: Duration = Duration::from_secs(10);

/// The pause after an accept failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The least that hyper buffers.
const BUFFER: usize = 8 << 10;

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> Infallible {
    let router = Router::new()
        .route("/livez", get(health))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .with_state(shared);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(BUFFER);
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // At the limit newcomers wait in the kernel's queue.
        let permit = Arc::clone(&connections).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection =
            http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = connection.await {
                debug!(%error, "connection ended early");
            }
        });
    }
}

/// A restart may mend a task that is dead or stuck.
async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let ill = shared.tasks.ill();
    if ill.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let list: Vec<String> = ill.iter().map(|(name, state)| format!("{name} is {state}")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}; see /status\n", list.join(", ")))
}

async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, &'static str) {
    if shared.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the node hasn't been checked and told about yet; see /status\n")
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], shared.metrics.text())
}

async fn status(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], shared.status())
}
