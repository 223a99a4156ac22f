//! Single requests, with what the answers' headers say.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use crate::checks::ReferenceClock;

/// The most that an answer may have: the pods of a node with all their annotations.
const LARGEST: usize = 64 << 20;

/// The longest that is waited because a server asks for it.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// How often the credentials are read anew at most.
const RENEW: Duration = Duration::from_secs(2);

/// The API server.
pub struct ApiServer {
    config: kube::Config,
    patience: Duration,
    state: Mutex<State>,
}

struct State {
    client: Client,
    made: Instant,
    /// The API server's clock, and what ours that never goes back showed then.
    clock: Option<(SystemTime, Instant)>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing else: the configuration holds credentials.
        f.debug_struct("ApiServer").field("at", &self.config.cluster_url).finish_non_exhaustive()
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server's answer isn't a yes.
    #[error("{method} {path}: {code} {message}{advice}")]
    Refused {
        /// What was asked.
        method: Method,
        /// Of what.
        path: String,
        /// HTTP status.
        code: StatusCode,
        /// What the API server says.
        message: String,
        /// What to do.
        advice: &'static str,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// There was no answer.
    #[error("{method} {path}: {problem}")]
    NotReached {
        /// What was asked.
        method: Method,
        /// Of what.
        path: String,
        /// What happened.
        problem: String,
    },
    /// The answer can't be read.
    #[error("{path}: the answer can't be understood: {problem}")]
    NotUnderstood {
        /// Of what.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

impl ApiError {
    /// The HTTP status, if there was an answer.
    pub fn code(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::NotReached { .. } | Self::NotUnderstood { .. } => None,
        }
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::NotReached { .. } | Self::NotUnderstood { .. } => None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: Option<String>,
}

impl ApiServer {
    /// Speaks to the API server of `config`. An answer, other than a watch's, is waited for as long as `patience`.
    ///
    /// # Errors
    ///
    /// When no client can be made of the configuration.
    pub fn new(mut config: kube::Config, patience: Duration) -> Result<Self, kube::Error> {
        // Retries are ours: they have to know Retry-After and must not outlive a decision.
        config.default_retry = false;
        config.connect_timeout = Some(patience);
        // Watches have a limit of their own.
        config.read_timeout = None;
        let client = Client::try_from(config.clone())?;
        let state = Mutex::new(State { client, made: Instant::now(), clock: None });
        Ok(Self { config, patience, state })
    }

    /// What the API server's clock shows, by its last answer.
    pub fn clock(&self) -> Option<ReferenceClock> {
        let (time, at) = self.state.lock().unwrap_or_else(PoisonError::into_inner).clock?;
        Some(ReferenceClock { owner: "the API server".to_owned(), time: time + at.elapsed() })
    }

    /// A whole answer.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, ApiError> {
        let failed =
            |problem: String| ApiError::NotReached { method: method.clone(), path: path.to_owned(), problem };
        let whole = async {
            let answer = self.send(&method, path, content_type, body).await?;
            let body = Limited::new(answer.into_body(), LARGEST).collect().await;
            Ok(body.map_err(|error| failed(error.to_string()))?.to_bytes().to_vec())
        };
        timeout(self.patience, whole)
            .await
            .unwrap_or_else(|_| Err(failed(format!("no answer within {} s", self.patience.as_secs_f64()))))
    }

    /// An answer whose body is still to come.
    pub(super) async fn open(&self, path: &str) -> Result<Body, ApiError> {
        let answer = timeout(self.patience, self.send(&Method::GET, path, "", Vec::new())).await;
        let silent = |_| ApiError::NotReached {
            method: Method::GET,
            path: path.to_owned(),
            problem: format!("no answer within {} s", self.patience.as_secs_f64()),
        };
        Ok(answer.map_err(silent)??.into_body())
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Result<Response<Body>, ApiError> {
        let failed =
            |problem: String| ApiError::NotReached { method: method.clone(), path: path.to_owned(), problem };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(USER_AGENT, concat!("swansong-agent/", env!("CARGO_PKG_VERSION")));
        if !content_type.is_empty() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(body)).map_err(|error| failed(error.to_string()))?;
        let client = self.state.lock().unwrap_or_else(PoisonError::into_inner).client.clone();
        let answer = client.send(request).await.map_err(|error| failed(causes(&error)))?;
        self.note_clock(answer.headers());
        let code = answer.status();
        if code.is_success() {
            return Ok(answer);
        }
        if code == StatusCode::UNAUTHORIZED {
            self.renew();
        }
        let retry_after = seconds(answer.headers(), &RETRY_AFTER).map(|wait| wait.min(LONGEST_WAIT));
        let body = Limited::new(answer.into_body(), 1 << 16).collect().await;
        // Without a body the code has to do.
        let status: Status =
            body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default();
        Err(ApiError::Refused {
            method: method.clone(),
            path: path.to_owned(),
            code,
            message: status.message.unwrap_or_default(),
            advice: advice(code),
            retry_after,
        })
    }

    /// The token in use isn't valid any more; kube keeps one for a minute, and its file may hold the next already.
    fn renew(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.made.elapsed() >= RENEW
            && let Ok(client) = Client::try_from(self.config.clone())
        {
            state.client = client;
            state.made = Instant::now();
        }
    }

    fn note_clock(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| httpdate(date.to_str().ok()?));
        if let Some(date) = date {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).clock = Some((date, Instant::now()));
        }
    }
}

const fn advice(code: StatusCode) -> &'static str {
    match code {
        StatusCode::UNAUTHORIZED => " (the token isn't accepted; see the agent's ServiceAccount)",
        StatusCode::FORBIDDEN => " (let the agent's ServiceAccount do this: RBAC)",
        _ => "",
    }
}

fn seconds(headers: &HeaderMap, name: &HeaderName) -> Option<Duration> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// `Sun, 29 Nov 2026 18:00:00 GMT`.
fn httpdate(text: &str) -> Option<SystemTime> {
    let parsed = k8s_openapi::jiff::fmt::rfc2822::parse(text).ok()?;
    Some(parsed.timestamp().into())
}

/// An error and what it comes from, which kube's own text leaves out.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let further = error.to_string();
        if !text.contains(&further) {
            text = format!("{text}: {further}");
        }
        cause = error.source();
    }
    text
}
