//! Requests to the API server.

use std::time::Duration;

use kube::core::Status;
use swansong_runtime::backoff::{Backoff, Limits};
use swansong_runtime::kube::{error_message, retry_after};
use tokio::time::sleep;

use crate::metrics::{Metrics, Operation};

/// Delays between attempts of one request.
const RETRY: Limits = Limits { first: Duration::from_secs(1), max: Duration::from_secs(16) };

/// Attempts of one request, which take about half a minute.
const MAX_ATTEMPTS: u32 = 6;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {}", error_message(.source))]
pub(crate) struct RequestError {
    operation: Operation,
    source: kube::Error,
}

impl RequestError {
    /// The API server's answer, if there was one.
    pub(crate) const fn status(&self) -> Option<&Status> {
        match &self.source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// How long the API server asks to wait before the next attempt.
    pub(crate) fn retry_after(&self) -> Duration {
        retry_after(&self.source).unwrap_or_default()
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match &self.source {
            // 401: the token has expired; kube reads the next one within a minute.
            kube::Error::Api(status) => matches!(status.code, 401 | 408 | 429) || status.code >= 500,
            kube::Error::SerdeError(_) => false,
            _ => true,
        }
    }
}

/// Sends a request, and repeats it while the API server is unavailable, up to [`MAX_ATTEMPTS`] times.
///
/// The caller's worker stays occupied meanwhile, so that an unavailable API server is sent few requests however many
/// jobs there are. `Retry-After` is honoured by kube's client for 429, 503 and 504, and here for the rest.
pub(crate) async fn request<T, F>(
    metrics: &Metrics,
    operation: Operation,
    mut send: impl FnMut() -> F,
) -> Result<T, RequestError>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut backoff = Backoff::new(RETRY);
    let mut attempt = 1;
    loop {
        let error = match send().await {
            Ok(result) => return Ok(result),
            Err(source) => RequestError { operation, source },
        };
        metrics.api_error(operation);
        if attempt == MAX_ATTEMPTS || !error.is_transient() {
            return Err(error);
        }
        sleep(backoff.next_delay(retry_after(&error.source))).await;
        attempt += 1;
    }
}
