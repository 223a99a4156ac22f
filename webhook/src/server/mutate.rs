//! `POST /mutate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::post;
use tracing::{debug, enabled, info, warn};

use super::body::BodyLimits;
use super::metrics::{Held, Metrics, Refusal};
use crate::config::Config;
use crate::reason::Reason;
use crate::review::{self, Answer, NotAReview, Verdict};

/// What a request is answered with.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<ArcSwap<Config>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) limits: BodyLimits,
    /// Set when the server is about to stop: clients are then asked, answer by answer, to come back elsewhere.
    pub(super) draining: Arc<AtomicBool>,
}

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new().route("/mutate", post(mutate)).with_state(shared)
}

async fn mutate(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let _held = Held::of(&shared.metrics.in_flight);
    let mut response = match shared.limits.read(request.into_body()).await {
        Ok(body) => answer(&shared, &body.bytes),
        Err(refusal) => shared.refuse(refusal, String::new()),
    };
    if shared.draining.load(Relaxed) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Synchronous and short, so that it needs no thread of its own.
fn answer(shared: &Shared, body: &[u8]) -> Response {
    let start = Instant::now();
    match review::answer(body, &shared.config.load()) {
        Ok(answer) => {
            shared.metrics.answered(&answer, start.elapsed());
            log(&answer);
            let mut response = Response::new(Body::from(answer.body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => shared.refuse(Refusal::NotAReview, not_a_review(&error)),
    }
}

fn not_a_review(error: &NotAReview) -> String {
    format!("{error}; this path is for the API server's admission reviews\n")
}

impl Shared {
    fn refuse(&self, refusal: Refusal, text: String) -> Response {
        self.metrics.refused(refusal);
        debug!(cause = ?refusal, "request refused");
        let (status, text) = match refusal {
            Refusal::NotAReview => (StatusCode::BAD_REQUEST, text),
            Refusal::Broken => (StatusCode::BAD_REQUEST, "the body ended too early\n".to_owned()),
            Refusal::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                format!("the body took longer than {:?}\n", self.limits.patience),
            ),
            Refusal::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {} bytes\n", self.limits.most),
            ),
            Refusal::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many large reviews at a time\n".to_owned())
            }
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if refusal != Refusal::NotAReview {
            // What is left of the body is not worth reading.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Says what was done to whom and why, by names only: values may be secrets.
fn log(answer: &Answer<'_>) {
    let Answer { kind, verdict, warnings, subject, .. } = answer;
    let failed = matches!(verdict, Verdict::Failed(_) | Verdict::Denied(_));
    if warnings.is_empty() && !failed && !enabled!(tracing::Level::DEBUG) {
        return;
    }
    let (kind, result) = (kind.as_str(), verdict.as_str());
    let reason = verdict.reason().map_or("", Reason::as_str);
    let object = subject.to_string();
    let object = object.as_str();
    let reasons: Vec<&str> = warnings.iter().map(|reason| reason.as_str()).collect();
    let warnings = reasons.join(",");
    let warnings = warnings.as_str();
    if failed {
        warn!(kind, object, result, reason, warnings, "review failed");
    } else if warnings.is_empty() {
        debug!(kind, object, result, reason, "reviewed");
    } else {
        info!(kind, object, result, reason, warnings, "reviewed with warnings");
    }
}
