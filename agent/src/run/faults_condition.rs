//! Keeps the Node's condition about the reporting of faults.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use swansong_faults::{ConditionState, ConditionStatus};
use swansong_runtime::backoff::Backoff;
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::Context;
use crate::finding::Ready;
use crate::node::FAULTS_CONDITION;
use crate::readiness::{Condition, truncate};

/// The shortest time between two writes.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// How long a change must hold before it is written.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// The longest time between two comparisons.
const RESYNC: Duration = Duration::from_secs(30);

/// Writes the desired condition whenever the Node shows another one.
pub(super) async fn run(
    context: Context,
    mut desired: watch::Receiver<Option<ConditionState>>,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let Context { shared, config, api, writer, timing, .. } = context;
    let heartbeat = config.readiness.heartbeat;
    let mut backoff = Backoff::new(timing.backoff);
    let mut nodes = shared.node.subscribe();
    let mut not_before = Instant::now();
    // With jitter, since all nodes of a cluster may have started at the same time.
    let mut next_heartbeat = Instant::now() + heartbeat.mul_f64(0.5 + fastrand::f64() / 2.0);
    loop {
        progress.alive();
        let now = Instant::now();
        let observed = nodes.borrow_and_update().as_ref().map(|node| node.faults.clone());
        let wanted = desired.borrow_and_update().clone();
        let mut wake = now + RESYNC;
        if let (Some(wanted), Some(observed)) = (wanted, observed) {
            let condition = condition(&wanted, observed.as_ref(), SystemTime::now());
            if shows(observed.as_ref(), &condition) && now < next_heartbeat {
                progress.succeeded();
            } else if now < not_before {
                wake = not_before;
            } else {
                match writer.set_condition(FAULTS_CONDITION, &condition).await {
                    Ok(state) => {
                        let Condition { status, reason, message, .. } = &condition;
                        info!(
                            status = status.as_str(),
                            reason, message, "updated the condition {FAULTS_CONDITION}"
                        );
                        shared.set_node(state);
                        backoff.reset();
                        not_before = now + MIN_INTERVAL;
                        next_heartbeat = now + heartbeat.mul_f64(1.0 + fastrand::f64());
                        progress.succeeded();
                    }
                    Err(error) => {
                        shared.metrics.record_api_error("faults_condition");
                        let delay = backoff.next_delay(api.retry_after());
                        warn!(%error, ?delay, "the condition {FAULTS_CONDITION} can't be updated, retrying");
                        progress.failed(&error);
                        not_before = now + delay;
                    }
                }
                wake = not_before;
            }
        }
        tokio::select! {
            changed = desired.changed() => {
                if changed.is_err() {
                    return Err(TaskError("the fault pipeline has ended".to_owned()));
                }
                not_before = not_before.max(Instant::now() + DEBOUNCE);
            }
            _ = nodes.changed() => {}
            () = sleep_until(wake) => {}
        }
    }
}

fn shows(observed: Option<&Condition>, wanted: &Condition) -> bool {
    observed.is_some_and(|observed| {
        (observed.status, &observed.reason, &observed.message)
            == (wanted.status, &wanted.reason, &wanted.message)
    })
}

/// The condition to be written. Its transition time changes only with the status.
fn condition(desired: &ConditionState, observed: Option<&Condition>, now: SystemTime) -> Condition {
    let ConditionState { status, reason, message } = desired;
    let (status, mut message) = (ready(*status), message.clone());
    truncate(&mut message);
    let same_status = observed.filter(|observed| observed.status == status);
    Condition {
        status,
        reason: (*reason).to_owned(),
        message,
        heartbeat: now,
        transition: same_status.map_or(now, |observed| observed.transition),
    }
}

const fn ready(status: ConditionStatus) -> Ready {
    match status {
        ConditionStatus::True => Ready::True,
        ConditionStatus::False => Ready::False,
        ConditionStatus::Unknown => Ready::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let desired = |status, reason| ConditionState { status, reason, message: "m".to_owned() };
        let first = condition(&desired(ConditionStatus::True, "A"), None, at(1));
        let second = condition(&desired(ConditionStatus::False, "B"), Some(&first), at(2));
        let third = condition(&desired(ConditionStatus::False, "C"), Some(&second), at(3));
        assert_eq!((first.transition, second.transition, third.transition), (at(1), at(2), at(2)));
        assert_eq!(third.heartbeat, at(3));
        let again = condition(&desired(ConditionStatus::False, "C"), Some(&third), at(4));
        assert!(shows(Some(&third), &again));
        assert!(!shows(Some(&third), &second));
    }
}
