//! `POST /v1/faults`.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use swansong_clusterd::{MAX_BATCH, PublicFault};
use tokio::sync::Semaphore;

use crate::answer::{Problem, Reason};
use crate::metrics::Metrics;
use crate::pump::Pump;
use crate::review::{Doorkeeper, Refused, Reviewer};
use crate::{MAX_BODY, PATH};

/// Memory for bodies, all together, in KiB.
const ROOM: usize = 64 << 10;

/// What the handler works with.
#[derive(Debug)]
pub struct Shared<R> {
    /// Who may hand over.
    pub door: Doorkeeper<R>,
    /// Where to.
    pub pump: Arc<Pump>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

struct Inner<R> {
    shared: Shared<R>,
    room: Semaphore,
}

/// The body of a request.
#[derive(Deserialize)]
struct Faults {
    faults: Vec<PublicFault>,
}

/// The agents' door.
pub fn router<R: Reviewer>(shared: Shared<R>) -> Router {
    let inner = Inner { shared, room: Semaphore::new(ROOM) };
    Router::new().route(PATH, post(faults::<R>)).with_state(Arc::new(inner))
}

/// Health and metrics, without TLS.
pub fn health(metrics: Arc<Metrics>, pump: Arc<Pump>) -> Router {
    let told = move || {
        metrics.waiting.set(i64::try_from(pump.waiting()).unwrap_or(i64::MAX));
        let text = metrics.text();
        async { ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text) }
    };
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(async || "ok\n"))
        .route("/metrics", get(told))
}

async fn faults<R: Reviewer>(State(inner): State<Arc<Inner<R>>>, request: Request) -> Response {
    let response = match take(&inner, request).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(problem) => answer(&problem),
    };
    inner.shared.metrics.request(response.status().as_u16());
    response
}

async fn take<R: Reviewer>(inner: &Inner<R>, request: Request) -> Result<(), Problem> {
    let (head, body) = request.into_parts();
    // Before the body: a stranger's isn't read.
    let node = node(inner, &head.headers).await?;
    let length = length(&head.headers)?;
    let kib = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
    let _room = inner
        .room
        .try_acquire_many(kib)
        .map_err(|_| Problem::new(Reason::Busy, "there is no memory for another request"))?;
    let faults = read(body, length).await?;
    check(&faults, &node)?;
    Ok(inner.shared.pump.submit(faults).await?)
}

async fn node<R: Reviewer>(inner: &Inner<R>, headers: &HeaderMap) -> Result<String, Problem> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().trim();
    inner.shared.door.node_of(token).await.map_err(|refused| {
        let reason = match refused {
            Refused::NotAnAgent(_) => Reason::NotAnAgent,
            Refused::Unknown(_) => Reason::NoReview,
        };
        Problem::new(reason, refused.to_string())
    })
}

/// Bytes of the body, which has to be told beforehand: memory is set aside for it.
fn length(headers: &HeaderMap) -> Result<usize, Problem> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    length.filter(|length| *length <= MAX_BODY).ok_or_else(|| {
        Problem::new(Reason::Malformed, format!("a request tells its Content-Length, at most {MAX_BODY}"))
    })
}

async fn read(body: Body, length: usize) -> Result<Vec<PublicFault>, Problem> {
    let malformed = |why: String| Problem::new(Reason::Malformed, why);
    let bytes = to_bytes(body, length).await.map_err(|error| malformed(error.to_string()))?;
    let Faults { faults } = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    Ok(faults)
}

/// Every fault is of the agent's own node and keeps ClusterD's rules.
fn check(faults: &[PublicFault], node: &str) -> Result<(), Problem> {
    if faults.is_empty() || faults.len() > MAX_BATCH {
        let count = faults.len();
        return Err(Problem::new(Reason::Malformed, format!("{count} faults; 1 to {MAX_BATCH} are taken")));
    }
    for fault in faults {
        if fault.node != node {
            let message = format!("an agent on {node} tells nothing of {:?}", fault.node);
            return Err(Problem::new(Reason::NotYours, message));
        }
        fault.validate().map_err(|invalid| Problem::new(Reason::Malformed, invalid.to_string()))?;
    }
    Ok(())
}

fn answer(problem: &Problem) -> Response {
    let mut response = (problem.status(), axum::Json(problem)).into_response();
    if let Some(seconds) = problem.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}
