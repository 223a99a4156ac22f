//! The exchange with ClusterD: a fault is sent, shown, withdrawn and gone.

use std::collections::BTreeMap;
use std::time::Duration;

use swansong_clusterd::{PublicFault, SendError};
use swansong_fault_model::{Assertion, rehearsal_expiry};
use swansong_faults::{Route, unix_millis};
use tokio::time::{Instant, sleep, timeout};

use super::report::{Log, Step, StepName};
use crate::finding::Status;

/// The level of a code on which ClusterD doesn't act.
const HARMLESS: &str = "NotHandleFault";

/// How long a fault that isn't accepted is sent again. ClusterD accepts one message a second from all agents together.
const SEND: Duration = Duration::from_secs(10);
/// The same for its end.
const WITHDRAW: Duration = Duration::from_mins(1);
/// The limit of one attempt by all transports.
const ATTEMPT: Duration = Duration::from_mins(1);
/// ClusterD shows a fault a second after it accepted it, and an end when the fault is five seconds old.
const SHOW: Duration = Duration::from_secs(20);
/// What isn't shown for so long after its end isn't shown later.
const CERTAIN: Duration = Duration::from_secs(6);
/// Between two attempts or observations.
const INTERVAL: Duration = Duration::from_millis(500);

/// Carries faults to ClusterD, and shows what it has.
pub(super) trait Exchange {
    async fn send(&self, batch: &[PublicFault]) -> (Route, Result<(), SendError>);
    async fn shown(&self) -> Result<Shown, String>;
}

/// Swansong's faults of the node that ClusterD shows.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    /// The level of each, by id.
    pub(super) levels: BTreeMap<String, Option<String>>,
    /// Whether these are all.
    pub(super) is_complete: bool,
}

/// Sends `fault` and takes it back. After it may have been sent, it is withdrawn in any case.
pub(super) async fn run(
    exchange: &impl Exchange,
    fault: &PublicFault,
    stop: impl Future<Output = ()>,
    log: &mut Log<impl FnMut(&Step)>,
) {
    let shown = match exchange.shown().await {
        Ok(shown) => shown,
        Err(problem) => {
            let advice = "give the agent's service account the right to get it; nothing was sent";
            let problem = format!("statistic-fault-info can't be read: {problem}; {advice}");
            return log.add(StepName::Observe, Status::Unknown, problem);
        }
    };
    log.add(StepName::Observe, Status::Pass, "statistic-fault-info can be read");
    log.sending(&fault.fault_id);
    let has_appeared = tokio::select! {
        biased;
        () = stop => {
            log.add(StepName::Appear, Status::Unknown, "interrupted");
            Some(false)
        }
        has_appeared = send_and_observe(exchange, fault, log) => has_appeared,
    };
    let Some(has_appeared) = has_appeared else { return };
    let mut batch = vec![fault.with_assertion(Assertion::Recover)];
    // What an earlier rehearsal left when it was killed.
    let now = Duration::from_millis(unix_millis());
    let stale = shown.levels.keys().filter(|id| rehearsal_expiry(id, now).is_some_and(|at| at <= now));
    batch
        .extend(stale.map(|id| PublicFault { fault_id: id.clone(), ..batch[0].clone() }).collect::<Vec<_>>());
    withdraw(exchange, &batch, has_appeared, log).await;
}

/// Whether the fault has appeared; `None` if ClusterD can't have it.
async fn send_and_observe(
    exchange: &impl Exchange,
    fault: &PublicFault,
    log: &mut Log<impl FnMut(&Step)>,
) -> Option<bool> {
    match send(exchange, std::slice::from_ref(fault), SEND).await {
        Ok(route) => {
            log.sent(route);
            let (route, id, device) = (<&str>::from(route), &fault.fault_id, fault.devices[0]);
            log.add(StepName::Send, Status::Pass, format!("{route}: {id}, device {device}"));
        }
        Err(Unsent { error, may_be_known }) => {
            log.add(StepName::Send, Status::Fail, error.to_string());
            return may_be_known.then_some(false);
        }
    }
    let id = &fault.fault_id;
    match observe(exchange, |shown| shown.levels.contains_key(id)).await {
        Ok(shown) => {
            match &shown.levels[id] {
                Some(level) if level != HARMLESS => {
                    let message = format!(
                        "ClusterD shows it as {level} instead of {HARMLESS}: its customization has the code in another list; install the file that `swansong clusterd-config` writes"
                    );
                    log.add(StepName::Appear, Status::Fail, message);
                }
                _ => log.add(StepName::Appear, Status::Pass, "ClusterD shows it"),
            }
            Some(true)
        }
        Err(problem) => {
            let (status, problem) = problem.unwrap_or_else(|| {
                let message = format!(
                    "ClusterD doesn't show it after {SHOW:?}: its log says why; check that the file of `swansong clusterd-config` is installed on its host, and that it reads ConfigMaps if one carried the fault"
                );
                (Status::Fail, message)
            });
            log.add(StepName::Appear, status, problem);
            Some(false)
        }
    }
}

async fn withdraw(
    exchange: &impl Exchange,
    batch: &[PublicFault],
    has_appeared: bool,
    log: &mut Log<impl FnMut(&Step)>,
) {
    let advice = "an agent with faults enabled withdraws it when it is ten minutes old, and so does the next rehearsal; ClusterD doesn't act on it";
    match send(exchange, batch, WITHDRAW).await {
        Ok(route) => log.add(StepName::Withdraw, Status::Pass, format!("{}: its end", <&str>::from(route))),
        Err(Unsent { error, .. }) => {
            return log.add(StepName::Withdraw, Status::Fail, format!("{error}; {advice}"));
        }
    }
    if !has_appeared {
        sleep(CERTAIN).await;
    }
    match observe(exchange, |shown| !shown.levels.contains_key(&batch[0].fault_id)).await {
        Ok(_) => log.add(StepName::Disappear, Status::Pass, "ClusterD shows it no longer"),
        Err(problem) => {
            let (status, problem) =
                problem.unwrap_or_else(|| (Status::Fail, format!("ClusterD still shows it after {SHOW:?}")));
            log.add(StepName::Disappear, status, format!("{problem}; {advice}"));
        }
    }
}

/// A batch wasn't accepted.
struct Unsent {
    error: SendError,
    /// Whether ClusterD may still have it.
    may_be_known: bool,
}

/// Sends a batch until it is accepted or invalid, at most for `limit`.
async fn send(exchange: &impl Exchange, batch: &[PublicFault], limit: Duration) -> Result<Route, Unsent> {
    let deadline = Instant::now() + limit;
    let mut may_be_known = false;
    loop {
        let error = match timeout(ATTEMPT, exchange.send(batch)).await {
            Ok((route, Ok(()))) => return Ok(route),
            Ok((_, Err(error))) => error,
            Err(_) => SendError::Unavailable(format!("no transport answered within {ATTEMPT:?}")),
        };
        let is_invalid = matches!(error, SendError::Invalid(_) | SendError::InvalidBatch(_));
        may_be_known |= !is_invalid && !matches!(error, SendError::TooMany(_));
        if is_invalid || Instant::now() + INTERVAL >= deadline {
            return Err(Unsent { error, may_be_known });
        }
        sleep(INTERVAL).await;
    }
}

/// Waits until ClusterD shows what is expected. The error says what couldn't be read, if anything.
async fn observe(
    exchange: &impl Exchange,
    is_expected: impl Fn(&Shown) -> bool,
) -> Result<Shown, Option<(Status, String)>> {
    let mut problem = None;
    let observing = async {
        loop {
            match exchange.shown().await {
                Ok(shown) if !shown.is_complete => {
                    let message = "ClusterD has too many faults to show them all".to_owned();
                    problem = Some((Status::Unknown, message));
                }
                Ok(shown) if is_expected(&shown) => return shown,
                Ok(_) => problem = None,
                Err(error) => {
                    let message = format!("statistic-fault-info can't be read: {error}");
                    problem = Some((Status::Unknown, message));
                }
            }
            sleep(INTERVAL).await;
        }
    };
    timeout(SHOW, observing).await.map_err(|_| problem)
}

#[cfg(test)]
mod tests;
