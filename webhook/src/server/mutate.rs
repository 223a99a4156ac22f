//! `POST /mutate`: admission reviews.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use swansong_api::documented::Documented as _;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::post;
use swansong_runtime::http::GaugeGuard;
use swansong_runtime::log_limiter::LogLimiter;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, enabled, info, warn};

use super::body::{BodyLimits, ReadError};
use super::deadlines::ReviewDeadlines;
use super::metrics::{Metrics, Refusal};
use crate::config::Config;
use crate::ready_nodes::ReadyNodes;
use crate::review::{self, Answer, NotAReview};
use swansong_inject::reason::Reason;

/// What the handler of reviews works with.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: watch::Receiver<Config>,
    pub(super) ready_nodes: watch::Receiver<ReadyNodes>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) bodies: BodyLimits,
    /// The longest that a review's body may take to arrive.
    pub(super) review_timeout: Duration,
    /// While draining, each response asks its client to use another connection.
    pub(super) draining: Arc<AtomicBool>,
    pub(super) unprocessed_log: LogLimiter,
    pub(super) warnings_log: LogLimiter,
}

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new().route("/mutate", post(mutate)).with_state(shared)
}

async fn mutate(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let _in_flight = GaugeGuard::new(&shared.metrics.in_flight);
    let deadlines = ReviewDeadlines::new(request.uri().query(), shared.review_timeout, Instant::now());
    let mut response = match shared.bodies.read(request.into_body(), &deadlines).await {
        Ok(body) => shared.review(&body.bytes, &deadlines),
        Err(ReadError::Timeout { reason, head, is_drained }) => shared.shed(reason, &head, is_drained),
        Err(ReadError::Refused(refusal)) => shared.refuse(refusal, String::new()),
    };
    if shared.draining.load(Relaxed) {
        close(&mut response);
    }
    response
}

/// Asks the client to use another connection.
fn close(response: &mut Response) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

impl Shared {
    /// Synchronous: a review takes microseconds.
    fn review(&self, body: &[u8], deadlines: &ReviewDeadlines) -> Response {
        let start = Instant::now();
        if deadlines.caller.is_some_and(|caller| start >= caller) {
            // The API server doesn't read the response any more, but the object is counted as unprocessed.
            return self.shed(Reason::DeadlineExceeded, body, true);
        }
        match review::answer(body, &self.config.borrow(), *self.ready_nodes.borrow()) {
            Ok(answer) => {
                self.metrics.duration.observe(start.elapsed().as_secs_f64());
                self.respond(answer)
            }
            Err(error) => self.refuse(Refusal::NotAReview, not_a_review(&error)),
        }
    }

    /// Admits an object without processing it, if the head of its review has the uid that a response needs. Otherwise the
    /// API server applies its failure policy.
    fn shed(&self, reason: Reason, head: &[u8], is_drained: bool) -> Response {
        if let Some(answer) = review::admit_unprocessed(head, reason, &self.config.borrow()) {
            let mut response = self.respond(answer);
            if !is_drained {
                close(&mut response);
            }
            return response;
        }
        let refusal = match reason {
            Reason::Overloaded => Refusal::Overloaded,
            _ => Refusal::TooSlow,
        };
        self.refuse(refusal, String::new())
    }

    fn respond(&self, answer: Answer<'_>) -> Response {
        self.metrics.answered(&answer);
        self.log(&answer);
        let mut response = Response::new(Body::from(answer.body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    fn refuse(&self, refusal: Refusal, text: String) -> Response {
        self.metrics.refused(refusal);
        match refusal.unprocessed() {
            None => debug!(cause = refusal.as_str(), "request refused"),
            Some(reason) => {
                if let Some(suppressed) = self.unprocessed_log.admit() {
                    let (cause, reason) = (refusal.as_str(), reason.as_str());
                    warn!(cause, reason, suppressed, "request refused");
                }
            }
        }
        let (status, text) = match refusal {
            Refusal::NotAReview => (StatusCode::BAD_REQUEST, text),
            Refusal::Broken => (StatusCode::BAD_REQUEST, "the body ended too early\n".to_owned()),
            Refusal::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body took too long\n".to_owned()),
            Refusal::TooLarge => {
                let text = format!("the body is larger than {} bytes\n", self.bodies.max_size);
                (StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            Refusal::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, "too many large reviews at a time\n".to_owned())
            }
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        if refusal != Refusal::NotAReview {
            close(&mut response);
        }
        response
    }

    /// Logs names and reasons only: values may be secrets.
    fn log(&self, answer: &Answer<'_>) {
        let Answer { kind, verdict, warnings, subject, .. } = answer;
        let is_unprocessed = verdict.unprocessed().is_some();
        let limiter = if is_unprocessed {
            Some(&self.unprocessed_log)
        } else if !warnings.is_empty() {
            Some(&self.warnings_log)
        } else if enabled!(tracing::Level::DEBUG) {
            None
        } else {
            return;
        };
        let Some(suppressed) = limiter.map_or(Some(0), LogLimiter::admit) else { return };
        let (kind, result) = (kind.as_str(), verdict.as_str());
        let reason = verdict.reason().map_or("", Reason::as_str);
        let object = subject.to_string();
        let reasons: Vec<&str> = warnings.iter().map(|reason| reason.as_str()).collect();
        let warnings = reasons.join(",");
        if is_unprocessed {
            warn!(kind, object, result, reason, warnings, suppressed, "review not processed");
        } else if limiter.is_some() {
            info!(kind, object, result, reason, warnings, suppressed, "reviewed with warnings");
        } else {
            debug!(kind, object, result, reason, "reviewed");
        }
    }
}

fn not_a_review(error: &NotAReview) -> String {
    format!("{error}; this path is for the API server's admission reviews\n")
}
