//! How long a review may take.
//!
//! The API server says in the request's query how long it will wait (`?timeout=5s`, whole seconds rounded up, as
//! client-go writes it). Half of that is for the review; the other half is for the answer to arrive, or for its own
//! delays on the way here. Without the query, and at most, it is what the operator allows.

use std::time::Duration;

use tokio::time::Instant;

/// The times of one review, from when its head was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    /// Until when a large review may wait for its room.
    pub(super) room: Instant,
    /// Until when the whole review must be there.
    pub(super) whole: Instant,
    /// From when on the API server doesn't wait any more, if it said so.
    pub(super) given_up: Option<Instant>,
}

impl Patience {
    pub(super) fn of(query: Option<&str>, allowed: Duration, start: Instant) -> Self {
        let waits = query.and_then(waits);
        let whole = waits.map_or(allowed, |waits| allowed.min(waits / 2));
        // What has no room is read to its end all the same, and thrown away: only then can the API server be sure to
        // read the answer. Half of the time is left for that.
        Self { room: start + whole / 2, whole: start + whole, given_up: waits.map(|waits| start + waits) }
    }
}

/// How long the API server waits, by a request's query.
fn waits(query: &str) -> Option<Duration> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    go_duration(value).filter(|waits| !waits.is_zero())
}

/// A duration as Go writes whole seconds: `5s`, `1m0s`, `1h0m0s`.
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
    // Far beyond what a webhook may have (30 s), and far below where sums overflow.
    (seconds <= 86_400).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_servers_time_counts_within_what_is_allowed() {
        let (start, allowed) = (Instant::now(), Duration::from_secs(3));
        let ms = |ms| start + Duration::from_millis(ms);
        for (query, whole, given_up) in [
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
            let expected = Patience { room: ms(whole / 2), whole: ms(whole), given_up: given_up.map(ms) };
            assert_eq!(Patience::of(query, allowed, start), expected, "{query:?}");
        }
    }
}
