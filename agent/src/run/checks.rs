//! Repeats the checks on a thread, since file systems of the host may hang.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::Context;
use super::shared::Round;
use crate::checks::{self, CheckContext, DialOutcome, PortOwners, ReferenceClock};
use crate::finding::Report;
use crate::host::HostRoot;

/// A round takes some milliseconds. One that takes this long hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval of rounds while the status is about to change.
const SETTLING_INTERVAL: Duration = Duration::from_secs(1);

/// Checks the host. When the task ends, earlier results no longer apply.
pub(super) async fn run(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let result = repeat(&context, &progress).await;
    if let Err(TaskError(problem)) = &result {
        context.shared.round.send_replace(Round::Failed(problem.clone()));
    }
    result
}

async fn repeat(context: &Context, progress: &Progress) -> Result<Infallible, TaskError> {
    let shared = &context.shared;
    let mut is_settling = shared.is_settling.subscribe();
    let port_owners = Arc::new(PortOwners::default());
    loop {
        let started = Instant::now();
        let inputs = (context.clone(), check_context(context, &port_owners));
        let mut round = spawn_blocking(move || check(&inputs.0, inputs.1));
        let mut is_hanging = false;
        let result = loop {
            match timeout(HANG_TIMEOUT, &mut round).await {
                Ok(Ok(result)) => break result,
                Ok(Err(panic)) => return Err(TaskError(format!("a check panicked: {panic}"))),
                Err(_) if is_hanging => {}
                Err(_) => {
                    warn!(after = ?HANG_TIMEOUT, "the checks don't complete; does a file system of the host hang?");
                    is_hanging = true;
                    shared.round.send_replace(Round::Hanging);
                }
            }
        };
        if is_hanging {
            info!(took = ?started.elapsed(), "the checks have completed");
        }
        match result {
            Ok(report) => {
                shared.metrics.record_checks(&report, started.elapsed());
                shared.round.send_replace(Round::Completed(Arc::new(report)));
                progress.succeeded();
            }
            // The task continues, since a restart of the agent wouldn't help.
            Err(problem) => {
                let is_new = !matches!(&*shared.round.borrow(), Round::Failed(known) if *known == problem);
                if is_new {
                    warn!(problem, "the checks can't run");
                }
                progress.failed(&problem);
                shared.round.send_replace(Round::Failed(problem));
            }
        }
        let interval = context.config.checks.interval;
        let settling = async {
            // The timeout only bounds the wait.
            let _ = timeout(interval, is_settling.wait_for(|is_settling| *is_settling)).await;
        };
        tokio::select! {
            () = sleep(interval) => {}
            () = settling => sleep(SETTLING_INTERVAL.min(interval)).await,
        }
    }
}

fn check_context(context: &Context, port_owners: &Arc<PortOwners>) -> CheckContext {
    let Context { shared, api, .. } = context;
    let reference = api.clock().map(|time| ReferenceClock { owner: "the API server".to_owned(), time });
    CheckContext {
        reference,
        clusterd: shared.dial_outcome.borrow().clone(),
        expected_npus: shared.node.borrow().as_ref().and_then(|node| node.npus),
        port_owners: Arc::clone(port_owners),
        ..CheckContext::local()
    }
}

fn check(context: &Context, check_context: CheckContext) -> Result<Report, String> {
    let Context { shared, config, host_root, .. } = context;
    let root = HostRoot::open(host_root)
        .map_err(|error| format!("the host root {} can't be opened: {error}", host_root.display()))?;
    let check_context = CheckContext { now: SystemTime::now(), ..check_context }.with_mounts(&root);
    Ok(Report::new(&shared.node_name, checks::run(&root, &config.checks, &check_context)))
}

/// Dials ClusterD less often than the host is checked, since all nodes dial the same one.
pub(super) async fn dial(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let settings = context.config.checks.clusterd.clone();
    loop {
        progress.alive();
        let (address, timeout) = (settings.address.clone(), settings.timeout);
        let outcome = spawn_blocking(move || checks::dial(&address, timeout)).await;
        let outcome = outcome.map_err(|panic| TaskError(panic.to_string()))?;
        if outcome == DialOutcome::Connected {
            progress.succeeded();
        } else {
            progress.failed(&outcome);
        }
        context.shared.dial_outcome.send_replace(Some(outcome));
        sleep(settings.interval.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
    }
}
