//! The client of the API server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::Response;
use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use kube::Client;
use kube::client::{ClientBuilder, DynBody};
use swansong_runtime::kube::{error_message, status_code};
use tokio::time::timeout;
use tower::util::MapResponseLayer;

/// The longest respected `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// A client that also observes the API server's clock and its `Retry-After`.
///
/// kube's own retries are off: they would repeat a request whose content may be outdated by then.
#[derive(Clone)]
pub struct ApiClient {
    client: Client,
    timeout: Duration,
    observed: Arc<Mutex<Observed>>,
}

/// What responses say about the server.
#[derive(Debug, Default)]
struct Observed {
    /// The server's clock and the monotonic time at that moment.
    clock: Option<(SystemTime, Instant)>,
    /// No request should be sent before this time.
    not_before: Option<Instant>,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server refused it, or wasn't reached.
    #[error("{}", error_message(.0))]
    Kube(#[from] kube::Error),
    /// There was no response in time.
    #[error("no response within {0:?}")]
    Timeout(Duration),
}

impl ApiError {
    /// The HTTP status of the response, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Kube(error) => status_code(error),
            Self::Timeout(_) => None,
        }
    }
}

impl ApiClient {
    /// A client with a timeout for each request other than watches.
    ///
    /// # Errors
    ///
    /// When the configuration is invalid.
    pub fn new(mut config: kube::Config, timeout: Duration) -> Result<Self, kube::Error> {
        config.default_retry = false;
        config.connect_timeout = Some(timeout);
        let observed = Arc::new(Mutex::new(Observed::default()));
        let state = Arc::clone(&observed);
        let layer = MapResponseLayer::new(move |response: Response<Box<DynBody>>| {
            state.lock().unwrap_or_else(PoisonError::into_inner).update(response.headers());
            response
        });
        let client = ClientBuilder::try_from(config)?.with_layer(&layer).build();
        Ok(Self { client, timeout, observed })
    }

    /// The underlying client.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The API server's clock, by its last response.
    pub fn clock(&self) -> Option<SystemTime> {
        let (time, at) = self.observed.lock().unwrap_or_else(PoisonError::into_inner).clock?;
        Some(time + at.elapsed())
    }

    /// The remaining time of the last `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        let not_before = self.observed.lock().unwrap_or_else(PoisonError::into_inner).not_before?;
        not_before.checked_duration_since(Instant::now())
    }

    /// Sends a request with the timeout.
    pub async fn call<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiError> {
        timeout(self.timeout, request)
            .await
            .map_err(|_| ApiError::Timeout(self.timeout))?
            .map_err(ApiError::from)
    }
}

impl Observed {
    fn update(&mut self, headers: &HeaderMap) {
        if let Some(date) = text(headers, &DATE).and_then(http_date) {
            self.clock = Some((date, Instant::now()));
        }
        let seconds = text(headers, &RETRY_AFTER).and_then(|text| text.trim().parse().ok());
        if let Some(seconds) = seconds {
            self.not_before = Some(Instant::now() + Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Parses a date such as `Sun, 29 Nov 2026 18:00:00 GMT`.
fn http_date(text: &str) -> Option<SystemTime> {
    let parsed = k8s_openapi::jiff::fmt::rfc2822::parse(text).ok()?;
    Some(parsed.timestamp().into())
}
