//! What the node shows, brought into line with what is.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::value::RawValue;
use swansong_runtime::backoff::Backoff;
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::NodeSeen;
use super::status::{Look, Shared};
use crate::config::Config;
use crate::node::{
    About, ApiError, ApiServer, Change, Events, Follow, NodeState, Outgoing, Timing, follow, tell,
    toggle_taint,
};
use crate::readiness::{Actions, CheckState, NodeEvent, Now, Reconciler};

/// The annotation of Events that names the checks they are about.
const CHECKS: &str = "swansong.dev/checks";

/// The longest pause between two comparisons, whatever is or isn't heard.
const TICK: Duration = Duration::from_secs(5);

/// Keeps what the own node shows.
pub(super) async fn watch_node(
    shared: Arc<Shared>,
    api: Arc<ApiServer>,
    timing: Arc<Timing>,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let mut follower = Own(Arc::clone(&shared));
    let selector = ("metadata.name", shared.node_name.as_str());
    Ok(follow(&api, "/api/v1/nodes", selector, &timing, &mut follower, &progress).await)
}

struct Own(Arc<Shared>);

impl Follow for Own {
    fn replace(&mut self, objects: &[&RawValue]) {
        match objects.first() {
            Some(object) => self.change(Change::Applied, object),
            None => {
                if self.0.seen.send_replace(None).is_some() {
                    warn!("the node isn't known to the API server any more");
                }
            }
        }
    }

    fn change(&mut self, change: Change, object: &RawValue) {
        match (change, NodeState::read(object.get().as_bytes())) {
            (Change::Applied, Ok(state)) => show(&self.0.seen, state),
            (Change::Deleted, Ok(_)) => {
                self.0.seen.send_replace(None);
            }
            (_, Err(error)) => warn!(%error, "the Node can't be read"),
        }
    }
}

/// A watch and the answers to writes come by different ways, so that the older may come last.
pub(super) fn show(seen: &NodeSeen, state: NodeState) {
    seen.send_if_modified(|known| {
        if known.as_ref().is_some_and(|known| !state.is_as_new_as(known) || **known == state) {
            return false;
        }
        *known = Some(Arc::new(state));
        true
    });
}

/// Compares and writes.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: Arc<Config>,
    api: Arc<ApiServer>,
    timing: Arc<Timing>,
    events: Events,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let begun = Instant::now();
    let mut core =
        Reconciler::new(config.readiness.clone(), shared.node_name.clone(), shared.boot_id.clone());
    let (mut looks, mut nodes) = (shared.look.subscribe(), shared.seen.subscribe());
    let mut backoff = Backoff::new(timing.backoff);
    let mut quiet_until = begun;
    loop {
        progress.alive();
        let node = nodes.borrow_and_update().clone();
        let look = looks.borrow_and_update().clone();
        if let Some(node) = node {
            let now = Now { elapsed: begun.elapsed(), wall: SystemTime::now() };
            let step = core.reconcile(now, looked(&look), &node.observed);
            shared.settled(core.desired(), step.is_settling);
            if let Some(news) = &step.event {
                announce(news, &shared.node_name, &events);
            }
            let idle = step.update.is_none() && step.taint.is_none();
            if idle {
                if matches!(look, Look::Done(_)) && core.desired().is_some() {
                    shared.told();
                }
                progress.succeeded();
            } else if quiet_until <= Instant::now() {
                match write(&shared, &api, &node, &step).await {
                    Ok(()) => {
                        backoff.reset();
                        // What the answer shows is compared at once.
                        continue;
                    }
                    Err(error) => {
                        let wait = backoff.next_delay(error.retry_after());
                        warn!(%error, ?wait, "the node's state can't be told; trying again");
                        progress.failed(&error);
                        quiet_until = Instant::now() + wait;
                    }
                }
            }
        } else {
            progress.failed(&"the node isn't known yet");
        }
        let now = Instant::now();
        let wake = if quiet_until > now { (quiet_until - now).min(TICK) } else { TICK };
        tokio::select! {
            _ = looks.changed() => {}
            _ = nodes.changed() => {}
            () = sleep(wake) => {}
        }
    }
}

fn looked(look: &Look) -> CheckState<'_> {
    match look {
        Look::NotYet => CheckState::Pending,
        Look::Hangs => CheckState::Hanging,
        Look::Failed(problem) => CheckState::Failed(problem),
        Look::Done(report) => CheckState::Completed(&report.checks),
    }
}

async fn write(shared: &Shared, api: &ApiServer, node: &NodeState, step: &Actions) -> Result<(), ApiError> {
    let mut latest = node.clone();
    if let Some(write) = &step.update {
        let answer = tell(api, &shared.node_name, write).await;
        shared.metrics.wrote(write.cause, answer.is_ok());
        latest = answer?;
        let condition = &write.condition;
        info!(
            status = condition.status.as_str(),
            reason = condition.reason,
            message = condition.message,
            cause = write.cause.as_str(),
            "told the node's state"
        );
        show(&shared.seen, latest.clone());
    }
    if let Some(tainted) = step.taint {
        let answer = toggle_taint(api, &shared.node_name, &latest, tainted).await;
        shared.metrics.tainted(answer.is_ok());
        info!(tainted, ok = answer.is_ok(), "changed the taint");
        show(&shared.seen, answer?);
    }
    Ok(())
}

fn announce(news: &NodeEvent, node: &str, events: &Events) {
    let checks: Vec<String> =
        news.checks.iter().map(|(name, reason)| format!("{}={}", name.as_str(), reason.as_str())).collect();
    let annotations =
        if checks.is_empty() { BTreeMap::new() } else { BTreeMap::from([(CHECKS, checks.join(","))]) };
    events.tell(Outgoing {
        about: About::Node(node.to_owned()),
        warning: news.warning,
        reason: news.reason,
        message: news.message.clone(),
        annotations,
        once: false,
    });
}
