//! Single requests, with what the answers' headers say: kube's own calls don't tell how long to wait.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use crate::news::About;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest object that etcd holds, with room for it to be written as JSON.
const LARGEST: usize = 8 << 20;

/// The longest that is waited because a server asks for it.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The API server says no, and will until something changes: to this request, not to others.
    #[error("{what}: {code} {message}")]
    Refused { what: String, code: u16, message: String, cause: String, retry_after: Option<Duration> },
    /// It can't be told: no answer, or one that asks for patience.
    #[error("{what}: {problem}")]
    Unknown { what: String, problem: String, retry_after: Option<Duration> },
}

/// The API server, for what isn't watched.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
}

/// What an error's body says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Option<Vec<Cause>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

impl Api {
    /// `client` must not retry by itself.
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    /// An object, or that there is none.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        match self.call(Method::GET, path, "", Vec::new()).await {
            Err(Failure::Refused { code: 404, .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// A whole answer.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, Failure> {
        let what = format!("{method} {path}");
        let unknown = |problem: String| Failure::Unknown { what: what.clone(), problem, retry_after: None };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("swansong-job-guard/", env!("CARGO_PKG_VERSION")));
        if !content_type.is_empty() {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(body)).map_err(|error| unknown(error.to_string()))?;
        let whole = async {
            let answer = self.client.send(request).await.map_err(|error| unknown(causes(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST).collect().await;
            let body = body.map_err(|error| unknown(error.to_string()))?.to_bytes();
            if head.status.is_success() {
                return Ok(body.to_vec());
            }
            Err(failure(what.clone(), head.status, &head.headers, &body))
        };
        let silent = |_| Err(unknown(format!("no answer within {} s", PATIENCE.as_secs())));
        timeout(PATIENCE, whole).await.unwrap_or_else(silent)
    }
}

fn failure(what: String, code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
    let retry_after = headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.trim().parse().ok());
    let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
    // Without such a body the code has to do.
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    // 401: the token is out of date, and kube reads the next one within a minute.
    let patience = matches!(code.as_u16(), 401 | 408 | 429) || code.is_server_error();
    if patience {
        let problem = format!("{code} {}", status.message).trim().to_owned();
        return Failure::Unknown { what, problem, retry_after };
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let cause = causes.into_iter().next().map_or(status.reason, |cause| cause.reason);
    Failure::Refused { what, code: code.as_u16(), message: status.message, cause, retry_after }
}

/// An error and what it comes from, which kube's own text leaves out.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
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

/// A failure, and what it was about.
pub(crate) type Failed = (About, Failure);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, retry_after: Option<&str>, body: &str) -> Failure {
        let mut headers = HeaderMap::new();
        if let Some(wait) = retry_after {
            headers.insert(RETRY_AFTER, wait.parse().expect("a value"));
        }
        failure("GET /x".to_owned(), StatusCode::from_u16(code).expect("a code"), &headers, body.as_bytes())
    }

    #[test]
    fn a_no_is_told_from_a_not_now() {
        let quota = r#"{"kind":"Status","message":"exceeded quota: q","reason":"Forbidden","code":403}"#;
        let ends = r#"{"message":"is being terminated","reason":"Forbidden","details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#;
        for (code, body, cause) in [
            (403, quota, "Forbidden"),
            (403, ends, "NamespaceTerminating"),
            (404, "page not found", ""),
            (409, "{}", ""),
        ] {
            let Failure::Refused { cause: found, code: same, .. } = answer(code, None, body) else {
                panic!("{code} is a no");
            };
            assert_eq!((same, found.as_str()), (code, cause));
        }
        for code in [401, 429, 500, 503, 504] {
            assert!(matches!(answer(code, None, "Too many requests"), Failure::Unknown { .. }), "{code}");
        }
    }

    #[test]
    fn retry_after_is_heeded_within_bounds() {
        let after = |text| match answer(429, Some(text), "") {
            Failure::Unknown { retry_after, .. } | Failure::Refused { retry_after, .. } => retry_after,
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("86400"), Some(LONGEST_WAIT));
        assert_eq!(after("soon"), None);
        assert_eq!(answer(403, None, r#"{"message":"no"}"#).to_string(), "GET /x: 403 no");
        assert_eq!(answer(429, None, "slow").to_string(), "GET /x: 429 Too Many Requests");
    }
}
