//! Health and metrics, on a port of their own without TLS.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::prometheus_text;

use super::metrics::Metrics;

/// Whether there is a certificate to serve with.
pub type HasCertificate = Box<dyn Fn() -> bool + Send + Sync>;

pub(super) struct Health {
    pub(super) metrics: Arc<Metrics>,
    pub(super) draining: Arc<AtomicBool>,
    pub(super) has_certificate: HasCertificate,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("draining", &self.draining).finish_non_exhaustive()
    }
}

pub(super) fn router(health: Arc<Health>) -> Router {
    Router::new()
        .route("/livez", get(alive))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health)
}

/// Being able to answer at all is being alive. A lack of certificate isn't mended by a restart.
async fn alive() -> &'static str {
    "ok\n"
}

async fn ready(State(health): State<Arc<Health>>) -> (StatusCode, &'static str) {
    if health.draining.load(Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if (health.has_certificate)() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no certificate yet\n")
    }
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], health.metrics.text())
}
