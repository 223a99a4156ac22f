//! Health, metrics and status, over plain HTTP.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use swansong_runtime::http::{ConnectionMetrics, Health, Limits, Server};
use swansong_runtime::supervisor::TaskState;
use tokio::net::TcpListener;

use super::shared::Shared;

/// Serves until it is aborted.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) -> Infallible {
    let metrics = Arc::clone(&shared);
    let (live, healthy, ready) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
    let health = Health {
        // A restart doesn't help a source of faults whose driver is missing.
        live: Box::new(move || verdict(&live.tasks.unhealthy_essential())),
        healthy: Box::new(move || verdict(&healthy.tasks.unhealthy())),
        ready: Box::new(move || {
            let problem = "the Node doesn't exist, or doesn't show a result of the checks yet; see /status";
            if ready.is_ready() { Ok(()) } else { Err(problem.to_owned()) }
        }),
        metrics: Box::new(move || metrics.metrics.text()),
    };
    let status = get(async move || ([(CONTENT_TYPE, "application/json")], shared.status()));
    let server = Server {
        listener,
        tls: None,
        router: health.router().route("/status", status),
        limits: Limits::HEALTH,
        metrics: ConnectionMetrics::default(),
    };
    server.run(pending(), Duration::ZERO).await;
    pending().await
}

fn verdict(unhealthy: &[(&str, TaskState)]) -> Result<(), String> {
    if unhealthy.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = unhealthy.iter().map(|(name, state)| format!("{name} is {state}")).collect();
    Err(format!("{}; see /status", list.join(", ")))
}
