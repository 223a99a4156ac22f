//! The Node's condition `FaultsRelayed`, brought into line with what the relay says.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::status::Shared;
use crate::node::{ApiServer, Timing, tell_relayed};
use crate::readiness::{Condition, truncate};
use crate::relay::Told;
use swansong_runtime::backoff::Backoff;
use swansong_runtime::supervisor::{Progress, TaskError};

/// Between two writes, whatever happens: what comes and goes must not keep the API server busy.
const GAP: Duration = Duration::from_secs(5);
/// How long a change has to stand before it is told.
const HOLD: Duration = Duration::from_secs(1);
/// The longest between two looks.
const TICK: Duration = Duration::from_secs(30);

/// Tells what the relay says.
pub(super) async fn run(
    shared: Arc<Shared>,
    api: Arc<ApiServer>,
    timing: Arc<Timing>,
    heartbeat: Duration,
    mut told: watch::Receiver<Option<Told>>,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let mut backoff = Backoff::new(timing.backoff);
    let mut nodes = shared.seen.subscribe();
    let mut not_before = Instant::now();
    // By chance, so that the heartbeats of a cluster that was started at once don't come at once.
    let mut beat = Instant::now() + heartbeat.mul_f64(0.5 + fastrand::f64() / 2.0);
    loop {
        progress.alive();
        let now = Instant::now();
        let shown = shared.seen.borrow().as_ref().map(|node| node.relayed.clone());
        let wanted = told.borrow_and_update().clone();
        let mut wake = now + TICK;
        if let (Some(wanted), Some(shown)) = (wanted, shown) {
            if is_shown(&wanted, shown.as_ref()) && now < beat {
                progress.succeeded();
            } else if now < not_before {
                wake = not_before;
            } else {
                let condition = next(&wanted, shown.as_ref(), whole_seconds());
                match tell_relayed(&api, &shared.node_name, &condition).await {
                    Ok(state) => {
                        info!(
                            status = condition.status.as_str(),
                            reason = condition.reason,
                            message = condition.message,
                            "told whether faults are relayed"
                        );
                        super::tell::show(&shared.seen, state);
                        backoff.reset();
                        not_before = now + GAP;
                        beat = now + heartbeat.mul_f64(1.0 + fastrand::f64());
                        progress.succeeded();
                    }
                    Err(error) => {
                        shared.metrics.api_failed("relayed");
                        let wait = backoff.next_delay(error.retry_after());
                        warn!(%error, ?wait, "whether faults are relayed can't be told; trying again");
                        progress.failed(&error);
                        not_before = now + wait;
                    }
                }
                wake = not_before;
            }
        } else {
            progress.alive();
        }
        tokio::select! {
            changed = told.changed() => {
                if changed.is_err() {
                    return Err(TaskError("the relay is gone".to_owned()));
                }
                not_before = not_before.max(Instant::now() + HOLD);
            }
            _ = nodes.changed() => {}
            () = sleep_until(wake) => {}
        }
    }
}

fn is_shown(wanted: &Told, shown: Option<&Condition>) -> bool {
    let Some(shown) = shown else { return false };
    let mut message = wanted.message.clone();
    truncate(&mut message);
    shown.status == wanted.status && shown.reason == wanted.reason && shown.message == message
}

/// What is written: the time of the transition changes with the status only.
fn next(wanted: &Told, shown: Option<&Condition>, now: SystemTime) -> Condition {
    let mut message = wanted.message.clone();
    truncate(&mut message);
    let transition =
        shown.filter(|shown| shown.status == wanted.status).map_or(now, |shown| shown.transition);
    Condition { status: wanted.status, reason: wanted.reason.to_owned(), message, heartbeat: now, transition }
}

fn whole_seconds() -> SystemTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Ready;

    #[test]
    fn the_time_of_the_transition_changes_with_the_status_only() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let told = |status, reason| Told { status, reason, message: "m".to_owned() };
        let first = next(&told(Ready::True, "AllRelayed"), None, at(1));
        let second = next(&told(Ready::False, "OutboxFull"), Some(&first), at(2));
        let third = next(&told(Ready::False, "FaultRelayRefused"), Some(&second), at(3));
        assert_eq!((first.transition, second.transition, third.transition), (at(1), at(2), at(2)));
        assert_eq!(third.heartbeat, at(3));
        assert!(is_shown(&told(Ready::False, "FaultRelayRefused"), Some(&third)));
        assert!(!is_shown(&told(Ready::False, "OutboxFull"), Some(&third)));
    }
}
