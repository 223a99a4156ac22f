//! The checks, again and again, on a thread that may hang without anything else hanging.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::status::{Look, Shared};
use crate::check::{Dialled, PortOwners, Surroundings, dial as dial_once, run as run_checks};
use crate::config::Config;
use crate::node::ApiServer;
use crate::report::Report;
use crate::root::HostRoot;
use swansong_runtime::supervisor::{Progress, TaskError};

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
    shared.look.send_replace(Look::Failed);
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
        let surroundings = Surroundings { port_owners, ..surroundings(shared, api) };
        let (node, config, root) = (shared.node_name.clone(), Arc::clone(config), host_root.to_owned());
        let interval = config.interval;
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

fn surroundings(shared: &Shared, api: &ApiServer) -> Surroundings {
    Surroundings {
        reference: api.clock(),
        clusterd: shared.dialled.borrow().clone(),
        expected_npus: shared.seen.borrow().as_ref().and_then(|node| node.npus),
        ..Surroundings::here()
    }
}

fn look(node: String, config: &Config, root: &Path, surroundings: Surroundings) -> Result<Report, String> {
    let root = HostRoot::open(root)
        .map_err(|error| format!("the host root {} can't be opened: {error}", root.display()))?;
    // The clock is compared at the moment of the look.
    let surroundings = Surroundings { now: SystemTime::now(), ..surroundings }.with_mounts(&root);
    Ok(Report::new(node, run_checks(&root, config, &surroundings)))
}

/// Dials ClusterD, at a pace of its own: thousands of nodes have one.
pub(super) async fn dial(
    shared: Arc<Shared>,
    config: Arc<Config>,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    loop {
        progress.alive();
        let settings = config.clusterd.clone();
        let dialled = spawn_blocking(move || dial_once(&settings.address, settings.timeout)).await;
        let dialled = dialled.map_err(|panic| TaskError(panic.to_string()))?;
        if dialled == Dialled::Connected {
            progress.succeeded();
        } else {
            progress.failed(&dialled);
        }
        shared.dialled.send_replace(Some(dialled));
        sleep(config.clusterd.interval.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
    }
}
