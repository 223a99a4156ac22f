use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

/// Whether a probe passes; if not, why.
pub type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The endpoints for probes and scrapes.
pub struct Health {
    /// `/livez`: whether the kubelet should leave the container running.
    pub live: Check,
    /// `/healthz`: whether everything works.
    pub healthy: Check,
    /// `/readyz`: whether the Pod should get requests.
    pub ready: Check,
    /// `/metrics`, in the text format of Prometheus; see [`encode`].
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// The endpoints of a process that is live and ready whenever it answers.
    pub fn always(metrics: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self {
            live: Box::new(|| Ok(())),
            healthy: Box::new(|| Ok(())),
            ready: Box::new(|| Ok(())),
            metrics: Box::new(metrics),
        }
    }

    /// A router for the endpoints.
    pub fn router(self) -> Router {
        let Self { live, healthy, ready, metrics } = self;
        let metrics = Arc::new(metrics);
        let metrics = async move || ([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], metrics());
        Router::new()
            .merge(probe("/livez", live))
            .merge(probe("/healthz", healthy))
            .merge(probe("/readyz", ready))
            .route("/metrics", get(metrics))
    }
}

fn probe(path: &str, check: Check) -> Router {
    let check = Arc::new(check);
    let handler = async move || match check() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem + "\n"),
    };
    Router::new().route(path, get(handler))
}

/// Encodes metrics in the text format of Prometheus.
#[expect(clippy::missing_panics_doc, reason = "writing to a String doesn't fail")]
pub fn encode(registry: &Registry) -> String {
    let mut text = String::with_capacity(8 << 10);
    prometheus_text::encode(&mut text, registry).expect("writing to a String doesn't fail");
    text
}
