//! Time as an argument: everything that judges a certificate is told what time it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use rustls::pki_types::UnixTime;

/// Tells the time, so that tests can stand at the end of a certificate's life without waiting for it.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The machine's clock.
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

/// The time as people and logs write it; times that don't fit a calendar are shown as seconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = since_epoch(time);
    Timestamp::try_from(UNIX_EPOCH + since)
        .map_or_else(|_| format!("{} s after 1970", since.as_secs()), |at| at.to_string())
}

/// The time in a `Date` header.
pub(crate) fn http_date(text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?;
    rfc2822::parse(text).ok().map(|at| at.timestamp().into())
}

/// How far one clock is off another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Skew {
    /// By how much.
    pub by: Duration,
    /// Whether it is ahead.
    pub ahead: bool,
}

impl Skew {
    /// How far `own` is off `other`.
    pub fn between(own: SystemTime, other: SystemTime) -> Self {
        match own.duration_since(other) {
            Ok(by) => Self { by, ahead: true },
            Err(error) => Self { by: error.duration(), ahead: false },
        }
    }

    /// What a clock that is off by this much should show.
    pub fn correct(self, own: SystemTime) -> SystemTime {
        let right = if self.ahead { own.checked_sub(self.by) } else { own.checked_add(self.by) };
        right.unwrap_or(own)
    }
}

/// The time as rustls takes it.
pub(crate) fn unix_time(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(since_epoch(time))
}

/// Whole seconds since 1970, which is all that a certificate can hold; a clock before that counts as 1970.
fn since_epoch(time: SystemTime) -> Duration {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(since.as_secs())
}
