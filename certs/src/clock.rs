//! Time as an argument, so that tests can judge certificates at any time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use rustls::pki_types::UnixTime;

/// A source of wall-clock time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> SystemTime;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

impl<F> Clock for F
where
    F: Fn() -> SystemTime + Send + Sync + 'static,
{
    fn now(&self) -> SystemTime {
        self()
    }
}

/// Formats a time for logs and annotations. Times beyond the calendar are shown as seconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = since_epoch(time);
    Timestamp::try_from(UNIX_EPOCH + since)
        .map_or_else(|_| format!("{} s after 1970", since.as_secs()), |at| at.to_string())
}

/// Reads a time that [`rfc3339`] wrote.
pub(crate) fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// Reads the time of an HTTP `Date` header.
pub(crate) fn parse_http_date(text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?;
    rfc2822::parse(text).ok().map(|at| at.timestamp().into())
}

/// The difference between two clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClockSkew {
    /// The absolute difference.
    pub by: Duration,
    /// Whether this machine's clock is the later one.
    pub ahead: bool,
}

impl ClockSkew {
    /// Compares `own` with `other`.
    pub fn between(own: SystemTime, other: SystemTime) -> Self {
        match own.duration_since(other) {
            Ok(by) => Self { by, ahead: true },
            Err(error) => Self { by: error.duration(), ahead: false },
        }
    }

    /// Converts a time of the skewed clock to the time of the other clock.
    pub fn correct(self, own: SystemTime) -> SystemTime {
        let right = if self.ahead { own.checked_sub(self.by) } else { own.checked_add(self.by) };
        right.unwrap_or(own)
    }
}

/// Converts a time to the type that rustls takes.
pub(crate) fn unix_time(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(since_epoch(time))
}

/// Whole seconds, the resolution of certificates. Times before 1970 become 1970.
fn since_epoch(time: SystemTime) -> Duration {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(since.as_secs())
}
