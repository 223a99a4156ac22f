//! Accepts the agents' `POST /v1/faults`.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use swansong_clusterd::{MAX_BATCH, PublicFault};
use swansong_runtime::http::Health;
use tokio::sync::Semaphore;

use crate::auth::{AuthError, TokenAuthenticator};
use crate::dispatcher::Dispatcher;
use crate::metrics::Metrics;
use crate::problem::{Problem, Reason};
use crate::{MAX_BODY, PATH};

/// The memory limit of all request bodies together, in KiB.
const MAX_BODIES_KIB: usize = 64 << 10;

struct Gateway {
    authenticator: TokenAuthenticator,
    dispatcher: Arc<Dispatcher>,
    metrics: Arc<Metrics>,
    body_memory: Semaphore,
}

/// The body of a request.
#[derive(Deserialize)]
struct Faults {
    faults: Vec<PublicFault>,
}

/// The routes for agents.
pub fn router(
    authenticator: TokenAuthenticator,
    dispatcher: Arc<Dispatcher>,
    metrics: Arc<Metrics>,
) -> Router {
    let body_memory = Semaphore::new(MAX_BODIES_KIB);
    let gateway = Gateway { authenticator, dispatcher, metrics, body_memory };
    Router::new().route(PATH, post(post_faults)).with_state(Arc::new(gateway))
}

/// The routes for probes and metrics, without TLS.
pub fn health_router(metrics: Arc<Metrics>, dispatcher: Arc<Dispatcher>) -> Router {
    let text = move || {
        metrics.queued_requests.set(i64::try_from(dispatcher.queue_len()).unwrap_or(i64::MAX));
        metrics.text()
    };
    Health::always(text).router()
}

async fn post_faults(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let response = match handle(&gateway, request).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(problem) => problem_response(&problem),
    };
    gateway.metrics.record_request(response.status().as_u16());
    response
}

async fn handle(gateway: &Gateway, request: Request) -> Result<(), Problem> {
    let (head, body) = request.into_parts();
    // Unauthenticated bodies aren't read.
    let node = authenticate(gateway, &head.headers).await?;
    let length = content_length(&head.headers)?;
    let kib = u32::try_from(length.div_ceil(1 << 10)).unwrap_or(u32::MAX);
    let _memory = gateway
        .body_memory
        .try_acquire_many(kib)
        .map_err(|_| Problem::new(Reason::Busy, "there is no memory for another request"))?;
    let faults = read_faults(body, length).await?;
    check_faults(&faults, &node)?;
    gateway.dispatcher.submit(faults).await
}

/// The node of the agent that sends the request.
async fn authenticate(gateway: &Gateway, headers: &HeaderMap) -> Result<String, Problem> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().trim();
    gateway.authenticator.authenticate(token).await.map_err(|error| {
        let reason = match error {
            AuthError::NotAnAgent(_) => Reason::Unauthenticated,
            AuthError::ReviewFailed(_) => Reason::TokenReviewUnavailable,
        };
        Problem::new(reason, error.to_string())
    })
}

/// The Content-Length, which is mandatory as memory is reserved for the body.
fn content_length(headers: &HeaderMap) -> Result<usize, Problem> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    length.filter(|length| *length <= MAX_BODY).ok_or_else(|| {
        let message = format!("a request needs a Content-Length of at most {MAX_BODY}");
        Problem::new(Reason::Malformed, message)
    })
}

async fn read_faults(body: Body, length: usize) -> Result<Vec<PublicFault>, Problem> {
    let malformed = |why: String| Problem::new(Reason::Malformed, why);
    let bytes = to_bytes(body, length).await.map_err(|error| malformed(error.to_string()))?;
    let Faults { faults } = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
    Ok(faults)
}

/// Checks that the faults belong to the agent's node and follow ClusterD's rules.
fn check_faults(faults: &[PublicFault], node: &str) -> Result<(), Problem> {
    if faults.is_empty() || faults.len() > MAX_BATCH {
        let count = faults.len();
        return Err(Problem::new(Reason::Malformed, format!("{count} faults instead of 1 to {MAX_BATCH}")));
    }
    for fault in faults {
        if fault.node != node {
            let message = format!("an agent on {node} can't report faults of {:?}", fault.node);
            return Err(Problem::new(Reason::WrongNode, message));
        }
        fault.validate().map_err(|invalid| Problem::new(Reason::Malformed, invalid.to_string()))?;
    }
    Ok(())
}

fn problem_response(problem: &Problem) -> Response {
    let mut response = (problem.status(), axum::Json(problem)).into_response();
    if let Some(seconds) = problem.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}
