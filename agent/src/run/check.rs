//! The checks, again and again, on a thread that may hang without anything else hanging.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::status::{Look, Shared};
use crate::checks::{CheckContext, DialOutcome, PortOwners, dial as dial_once, run as run_checks};
use crate::config::Config;
use crate::finding::Report;
use crate::host::HostRoot;
use crate::node::ApiServer;

/// A round takes some milliseconds; one that takes so long hangs.
const HANGS: Duration = Duration::from_secs(10);

/// The pause between two looks while something is about to change.
const SOON: Duration = Duration::from_secs(1);

/// Checks the host. What was seen before the checks broke off doesn't stand for what is.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: Arc<Config>,
    api: Arc<ApiServer>,
    host_root: PathBuf,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let end = rounds(&shared, &config, &api, &host_root, &progress).await;
    if let Err(TaskError(problem)) = &end {
        shared.look.send_replace(Look::Failed(problem.clone()));
    }
    end
}

async fn rounds(
    shared: &Shared,
    config: &Arc<Config>,
    api: &ApiServer,
    host_root: &Path,
    progress: &Progress,
) -> Result<Infallible, TaskError> {
    let mut soon = shared.soon.subscribe();
    let port_owners = Arc::new(PortOwners::default());
    loop {
        let begun = Instant::now();
        let port_owners = Arc::clone(&port_owners);
        let surroundings = CheckContext { port_owners, ..surroundings(shared, api) };
        let (node, config, root) = (shared.node_name.clone(), Arc::clone(config), host_root.to_owned());
        let interval = config.checks.interval;
        let mut round = spawn_blocking(move || look(node, &config, &root, surroundings));
        let mut hangs = false;
        let report = loop {
            match timeout(HANGS, &mut round).await {
                Ok(Ok(report)) => break report.map_err(TaskError)?,
                Ok(Err(panic)) => return Err(TaskError(format!("a check failed: {panic}"))),
                Err(_) if hangs => {}
                Err(_) => {
                    warn!(after = ?HANGS, "the checks don't come to an end; does a file system of the host hang?");
                    hangs = true;
                    shared.look.send_replace(Look::Hangs);
                }
            }
        };
        if hangs {
            info!(took = ?begun.elapsed(), "the checks have come to an end");
        }
        shared.metrics.checked(&report, begun.elapsed());
        shared.look.send_replace(Look::Done(Arc::new(report)));
        progress.succeeded();
        let pause = async {
            // What stands may change at the next look.
            let _ = timeout(interval, soon.wait_for(|soon| *soon)).await;
        };
        tokio::select! {
            () = sleep(interval) => {}
            () = pause => sleep(SOON.min(interval)).await,
        }
    }
}

fn surroundings(shared: &Shared, api: &ApiServer) -> CheckContext {
    CheckContext {
        reference: api.clock(),
        clusterd: shared.dialled.borrow().clone(),
        expected_npus: shared.seen.borrow().as_ref().and_then(|node| node.npus),
        ..CheckContext::local()
    }
}

fn look(node: String, config: &Config, root: &Path, surroundings: CheckContext) -> Result<Report, String> {
    let root = HostRoot::open(root)
        .map_err(|error| format!("the host root {} can't be opened: {error}", root.display()))?;
    // The clock is compared at the moment of the look.
    let surroundings = CheckContext { now: SystemTime::now(), ..surroundings }.with_mounts(&root);
    Ok(Report::new(node, run_checks(&root, &config.checks, &surroundings)))
}

/// Dials ClusterD, at a pace of its own: thousands of nodes have one.
pub(super) async fn dial(
    shared: Arc<Shared>,
    config: Arc<Config>,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    loop {
        progress.alive();
        let settings = config.checks.clusterd.clone();
        let dialled = spawn_blocking(move || dial_once(&settings.address, settings.timeout)).await;
        let dialled = dialled.map_err(|panic| TaskError(panic.to_string()))?;
        if dialled == DialOutcome::Connected {
            progress.succeeded();
        } else {
            progress.failed(&dialled);
        }
        shared.dialled.send_replace(Some(dialled));
        sleep(config.checks.clusterd.interval.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
    }
}
