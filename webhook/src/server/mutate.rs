//! `POST /mutate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::post;
use tokio::time::Instant;
use tracing::{debug, enabled, info, warn};

use super::body::{Bodies, Unread};
use super::metrics::{Held, Metrics, Refusal};
use super::patience::Patience;
use super::quota::Quota;
use crate::config::Config;
use crate::ready_nodes::LastSeen;
use crate::review::{self, Answer, NotAReview};
use swansong_inject::reason::Reason;

/// What a request is answered with.
#[derive(Debug)]
pub(super) struct Shared {
    config: Arc<ArcSwap<Config>>,
    ready_nodes: Arc<LastSeen>,
    metrics: Arc<Metrics>,
    bodies: Bodies,
    /// The longest that a review may take to be there.
    review_time: Duration,
    /// Set when the server is about to stop: clients are then asked, answer by answer, to come back elsewhere.
    draining: Arc<AtomicBool>,
    /// Lines on reviews that weren't served.
    unserved_lines: Quota,
    /// Lines on reviews with warnings.
    warning_lines: Quota,
}

impl Shared {
    pub(super) fn new(
        config: Arc<ArcSwap<Config>>,
        ready_nodes: Arc<LastSeen>,
        metrics: Arc<Metrics>,
        bodies: Bodies,
        review_time: Duration,
        draining: Arc<AtomicBool>,
    ) -> Self {
        Self {
            config,
            ready_nodes,
            metrics,
            bodies,
            review_time,
            draining,
            unserved_lines: Quota::default(),
            warning_lines: Quota::default(),
        }
    }
}

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new().route("/mutate", post(mutate)).with_state(shared)
}

async fn mutate(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let _held = Held::of(&shared.metrics.in_flight);
    let patience = Patience::of(request.uri().query(), shared.review_time, Instant::now());
    let mut response = match shared.bodies.read(request.into_body(), &patience).await {
        Ok(whole) => shared.answer(&whole.bytes, &patience),
        Err(Unread::Untimely { reason, head, ended }) => shared.shed(reason, &head, ended),
        Err(Unread::Refused(refusal)) => shared.refuse(refusal, String::new()),
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
    /// Synchronous and short, so that it needs no thread of its own.
    fn answer(&self, body: &[u8], patience: &Patience) -> Response {
        let start = Instant::now();
        if patience.given_up.is_some_and(|given_up| start >= given_up) {
            // Nobody reads the answer; that the object passed by is counted.
            return self.shed(Reason::DeadlineExceeded, body, true);
        }
        match review::answer(body, &self.config.load(), self.ready_nodes.get()) {
            Ok(answer) => {
                self.metrics.duration.observe(start.elapsed());
                self.told(answer)
            }
            Err(error) => self.refuse(Refusal::NotAReview, not_a_review(&error)),
        }
    }

    /// Lets an object through for which there is no time, if its review's head says whom the answer is for. Else the
    /// API server decides by its failure policy.
    fn shed(&self, reason: Reason, head: &[u8], ended: bool) -> Response {
        if let Some(answer) = review::let_through(head, reason, &self.config.load()) {
            let mut response = self.told(answer);
            if !ended {
                // What is left of the body is not worth reading.
                close(&mut response);
            }
            return response;
        }
        self.refuse(
            match reason {
                Reason::Overloaded => Refusal::Overloaded,
                _ => Refusal::TooSlow,
            },
            String::new(),
        )
    }

    /// Counts and logs an answer, and makes it a response.
    fn told(&self, answer: Answer<'_>) -> Response {
        self.metrics.answered(&answer);
        self.log(&answer);
        let mut response = Response::new(Body::from(answer.body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    fn refuse(&self, refusal: Refusal, text: String) -> Response {
        self.metrics.refused(refusal);
        match refusal.unserved() {
            None => debug!(cause = refusal.as_str(), "request refused"),
            Some(reason) => {
                if let Some(unlogged) = self.unserved_lines.admit(Instant::now().into_std()) {
                    let (cause, reason) = (refusal.as_str(), reason.as_str());
                    warn!(cause, reason, unlogged, "request refused");
                }
            }
        }
        let (status, text) = match refusal {
            Refusal::NotAReview => (StatusCode::BAD_REQUEST, text),
            Refusal::Broken => (StatusCode::BAD_REQUEST, "the body ended too early\n".to_owned()),
            Refusal::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body took too long\n".to_owned()),
            Refusal::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {} bytes\n", self.bodies.most),
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
            close(&mut response);
        }
        response
    }

    /// Says what was done to whom and why, by names only: values may be secrets.
    fn log(&self, answer: &Answer<'_>) {
        let Answer { kind, verdict, warnings, subject, .. } = answer;
        let unserved = verdict.unserved().is_some();
        if warnings.is_empty() && !unserved && !enabled!(tracing::Level::DEBUG) {
            return;
        }
        let unlogged = if unserved || !warnings.is_empty() {
            let lines = if unserved { &self.unserved_lines } else { &self.warning_lines };
            let Some(unlogged) = lines.admit(Instant::now().into_std()) else { return };
            unlogged
        } else {
            0
        };
        let (kind, result) = (kind.as_str(), verdict.as_str());
        let reason = verdict.reason().map_or("", Reason::as_str);
        let object = subject.to_string();
        let object = object.as_str();
        let reasons: Vec<&str> = warnings.iter().map(|reason| reason.as_str()).collect();
        let warnings = reasons.join(",");
        let warnings = warnings.as_str();
        if unserved {
            warn!(kind, object, result, reason, warnings, unlogged, "review not served");
        } else if warnings.is_empty() {
            debug!(kind, object, result, reason, "reviewed");
        } else {
            info!(kind, object, result, reason, warnings, unlogged, "reviewed with warnings");
        }
    }
}

fn not_a_review(error: &NotAReview) -> String {
    format!("{error}; this path is for the API server's admission reviews\n")
}
