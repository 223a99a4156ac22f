//! How long a review may take.
//!
//! The API server sends its timeout in the query (`?timeout=5s`, whole seconds rounded up, as client-go writes it). Half
//! of that is for the review, the other half for delays on the way here and back.

use std::time::Duration;

use tokio::time::Instant;

/// The deadlines of one review, counted from when its head was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReviewDeadlines {
    /// Until when a large review may wait for memory.
    pub(super) memory: Instant,
    /// Until when the whole body must have arrived.
    pub(super) body: Instant,
    /// When the API server stops waiting, if the request contains that.
    pub(super) caller: Option<Instant>,
}

impl ReviewDeadlines {
    /// The deadlines of a request with this query; `limit` is the longest that its body may take.
    pub(super) fn new(query: Option<&str>, limit: Duration, start: Instant) -> Self {
        let timeout = query.and_then(query_timeout);
        let body = timeout.map_or(limit, |timeout| limit.min(timeout / 2));
        // A body without memory is still read to its end, and discarded: only then does the API server surely read the
        // response. Half of the time is left for that.
        Self { memory: start + body / 2, body: start + body, caller: timeout.map(|timeout| start + timeout) }
    }
}

fn query_timeout(query: &str) -> Option<Duration> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    go_duration(value).filter(|timeout| !timeout.is_zero())
}

/// Parses a duration of whole seconds as Go writes it: `5s`, `1m0s`, `1h0m0s`.
fn go_duration(mut text: &str) -> Option<Duration> {
    let mut seconds: u64 = 0;
    while !text.is_empty() {
        let unit = text.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = text[..unit].parse().ok()?;
        let factor = match text.as_bytes()[unit] {
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(factor)?)?;
        text = &text[unit + 1..];
    }
    // A webhook's timeout is at most 30 s; a day is far below where sums overflow.
    (seconds <= 86_400).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_timeout_counts_within_the_limit() {
        let (start, limit) = (Instant::now(), Duration::from_secs(3));
        let ms = |ms| start + Duration::from_millis(ms);
        for (query, body, caller) in [
            (None, 3000, None),
            (Some(""), 3000, None),
            (Some("timeout=5s"), 2500, Some(5000)),
            (Some("a=b&timeout=1s"), 500, Some(1000)),
            (Some("timeout=30s&a"), 3000, Some(30_000)),
            (Some("timeout=1m0s"), 3000, Some(60_000)),
            (Some("timeout=1h0m1s"), 3000, Some(3_601_000)),
            (Some("timeout=0s"), 3000, None),
            (Some("timeout=-1s"), 3000, None),
            (Some("timeout="), 3000, None),
            (Some("timeout=5"), 3000, None),
            (Some("timeout=s"), 3000, None),
            (Some("timeout=500ms"), 3000, None),
            (Some("timeout=ä"), 3000, None),
            (Some("timeout=99999999999999999999s"), 3000, None),
            (Some("timeout=18446744073709551615h"), 3000, None),
            (Some("nottimeout=5s"), 3000, None),
        ] {
            let expected = ReviewDeadlines { memory: ms(body / 2), body: ms(body), caller: caller.map(ms) };
            assert_eq!(ReviewDeadlines::new(query, limit, start), expected, "{query:?}");
        }
    }
}
