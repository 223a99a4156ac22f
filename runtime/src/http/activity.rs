use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Timeouts;
use super::metrics::Closed;

/// What a connection does, as recorded by its stream and its service.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    closing: OnceLock<Closed>,
    close: Notify,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Since when the client hasn't read its response.
    write_blocked: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No byte of the next request has arrived.
    Idle,
    /// The head of a request is arriving.
    Head,
    /// A request is processed, including its body.
    Request,
}

impl Activity {
    pub(super) fn new() -> Self {
        let state = State { phase: Phase::Idle, since: Instant::now(), write_blocked: None };
        Self { state: Mutex::new(state), closing: OnceLock::new(), close: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.state();
        (state.phase, state.since) = (phase, Instant::now());
    }

    pub(super) fn request_started(&self) {
        self.enter(Phase::Request);
    }

    pub(super) fn response_ready(&self) {
        self.enter(Phase::Idle);
    }

    pub(super) fn bytes_read(&self) {
        let mut state = self.state();
        if state.phase == Phase::Idle {
            (state.phase, state.since) = (Phase::Head, Instant::now());
        }
    }

    pub(super) fn write_blocked(&self) {
        self.state().write_blocked.get_or_insert_with(Instant::now);
    }

    /// All of the response was written. A client that reads single bytes gets no more time by that.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        if state.write_blocked.take().is_some() {
            // Meanwhile nothing was read either.
            state.since = Instant::now();
        }
    }

    /// Since when no request is processed, unless one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.phase != Phase::Request).then_some(state.since)
    }

    /// Why the connection has to be closed by now.
    pub(super) fn expired(&self, timeouts: &Timeouts, now: Instant) -> Option<Closed> {
        let state = self.state();
        let (since, timeout, cause) = match (state.write_blocked, state.phase) {
            (Some(since), _) => (since, timeouts.write, Closed::SlowReader),
            (None, Phase::Idle) => (state.since, timeouts.idle, Closed::Idle),
            (None, Phase::Head) => (state.since, timeouts.head, Closed::SlowHead),
            (None, Phase::Request) => (state.since, timeouts.request, Closed::SlowRequest),
        };
        (now.saturating_duration_since(since) >= timeout).then_some(cause)
    }

    /// Asks the connection to close; only the first cause counts.
    pub(super) fn close(&self, cause: Closed) {
        let _ = self.closing.set(cause);
        self.close.notify_one();
    }

    /// Why the connection was asked to close.
    pub(super) fn closing(&self) -> Option<Closed> {
        self.closing.get().copied()
    }

    /// Completes when the connection is asked to close.
    pub(super) async fn close_requested(&self) {
        self.close.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, sleep};

    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        handshake: Duration::from_secs(5),
        idle: Duration::from_mins(2),
        head: Duration::from_secs(5),
        request: Duration::from_mins(10),
        write: Duration::from_secs(3),
    };

    /// How long the connection may stay as it is, and the cause of its end.
    async fn expires(activity: &Activity) -> (Duration, Closed) {
        let start = Instant::now();
        loop {
            if let Some(cause) = activity.expired(&TIMEOUTS, Instant::now()) {
                return (start.elapsed(), cause);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_own_timeout() {
        let activity = Activity::new();
        assert_eq!(expires(&activity).await, (TIMEOUTS.idle, Closed::Idle));
        activity.bytes_read();
        assert_eq!(expires(&activity).await, (TIMEOUTS.head, Closed::SlowHead));
        activity.request_started();
        activity.bytes_read();
        assert_eq!(activity.idle_since(), None);
        assert_eq!(expires(&activity).await, (TIMEOUTS.request, Closed::SlowRequest));
        activity.response_ready();
        assert_eq!(expires(&activity).await, (TIMEOUTS.idle, Closed::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_arrives_byte_by_byte_gets_no_more_time() {
        let activity = Activity::new();
        for _ in 0..5 {
            activity.bytes_read();
            assert_eq!(activity.expired(&TIMEOUTS, Instant::now()), None);
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(activity.expired(&TIMEOUTS, Instant::now()), Some(Closed::SlowHead));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_response_counts_before_the_next_head() {
        let activity = Activity::new();
        activity.bytes_read();
        activity.write_blocked();
        advance(Duration::from_secs(2)).await;
        activity.write_blocked();
        assert_eq!(expires(&activity).await, (Duration::from_secs(1), Closed::SlowReader));
        activity.flushed();
        assert_eq!(expires(&activity).await, (TIMEOUTS.head, Closed::SlowHead));
    }
}
