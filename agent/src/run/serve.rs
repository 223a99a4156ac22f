//! Health, metrics and status, over plain HTTP/1.1.

use std::collections::VecDeque;
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
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::shared::Shared;
use swansong_runtime::supervisor::TaskState;

/// Probes and scrapes need a few.
const CONNECTIONS: usize = 64;

/// How long the head of a request may take.
const IDLE: Duration = Duration::from_secs(10);

/// The pause after an accept failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The least that hyper buffers.
const BUFFER: usize = 8 << 10;

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> Infallible {
    let router = Router::new()
        .route("/livez", get(alive))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .with_state(shared);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(BUFFER);
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::with_capacity(CONNECTIONS);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|connection| !connection.is_finished());
        // The oldest gives way. Else whoever holds connections, silent or without reading, keeps the kubelet's probes
        // out, which would kill the agent for that.
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection =
            http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        open.push_back(tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "connection ended early");
            }
        }));
    }
}

/// Fails if any task is unhealthy.
async fn health(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    verdict(&shared.tasks.unhealthy())
}

/// Those that a restart may mend. A source of faults whose driver is away isn't among them.
async fn alive(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    verdict(&shared.tasks.unhealthy_essential())
}

fn verdict(unhealthy: &[(&str, TaskState)]) -> (StatusCode, String) {
    if unhealthy.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let list: Vec<String> = unhealthy.iter().map(|(name, state)| format!("{name} is {state}")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}; see /status\n", list.join(", ")))
}

async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, &'static str) {
    if shared.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the Node doesn't show a result of the checks yet; see /status\n")
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], shared.metrics.text())
}

async fn status(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], shared.status())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::metrics::Metrics;
    use swansong_runtime::supervisor::Tasks;

    async fn connect(address: SocketAddr, head: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(head).await.expect("written");
        stream
    }

    #[tokio::test]
    async fn whoever_holds_connections_keeps_no_probe_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let tasks = Tasks::default();
        let metrics = Metrics::new(&tasks);
        let shared = Arc::new(Shared::new("n".to_owned(), None, tasks, metrics));
        let server = tokio::spawn(serve(listener, shared));
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            held.push(connect(address, b"GET /healthz HT").await);
        }
        let mut probe =
            connect(address, b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").await;
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(
            held[0].read(&mut [0; 1]).await.ok().filter(|&read| read > 0),
            None,
            "the oldest gave way"
        );
        // Nobody else did: the probe didn't just outwait them.
        let error = held[1].try_read(&mut [0; 1]).expect_err("still open");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        server.abort();
    }
}
