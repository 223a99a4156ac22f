//! Watches the own Node and reconciles it with the checks.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};
use swansong_api::documented::Documented as _;

use k8s_openapi::api::core::v1::Node;
use swansong_runtime::backoff::Backoff;
use swansong_runtime::events::{Event, node_reference};
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::Context;
use super::shared::Round;
use crate::node::{ApiError, Change, NodeState, watch_node};
use crate::readiness::{Actions, NodeEvent, Now, Reconciler, WriteCause};

/// The annotation of Events with the checks that they are about.
const CHECKS: &str = "swansong.dev/checks";

/// The longest time between two reconciliations.
const RESYNC: Duration = Duration::from_secs(5);

/// Keeps the observed state of the own Node.
pub(super) async fn watch(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let Context { shared, api, timing, .. } = context;
    let apply = |change: Change<Node>| match change {
        Change::Replaced(nodes) => match nodes.into_iter().next() {
            Some(node) => shared.set_node(node.into()),
            None => {
                if shared.forget_node() {
                    warn!("the Node no longer exists");
                }
            }
        },
        Change::Applied(node) => shared.set_node(node.into()),
        Change::Deleted(_) => {
            shared.forget_node();
        }
    };
    Ok(watch_node(&api, &shared.node_name, timing, &progress, apply).await)
}

/// Reconciles the Node with the checks.
pub(super) async fn reconcile(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let Context { shared, config, api, timing, .. } = &context;
    let started = Instant::now();
    let mut reconciler =
        Reconciler::new(config.readiness.clone(), &*shared.node_name, shared.boot_id.clone());
    let (mut rounds, mut nodes) = (shared.round.subscribe(), shared.node.subscribe());
    let mut backoff = Backoff::new(timing.backoff);
    let mut not_before = started;
    let mut is_deferred = false;
    loop {
        progress.alive();
        let node = nodes.borrow_and_update().clone();
        let round = rounds.borrow_and_update().clone();
        if let Some(node) = node {
            let now = Now { elapsed: started.elapsed(), wall: SystemTime::now() };
            let actions = reconciler.reconcile(now, round.check_state(), &node.observed);
            shared.set_desired(reconciler.desired(), actions.is_settling);
            if let Some(event) = &actions.event {
                context.events.send(to_event(event, &shared.node_name));
            }
            if let Some(wait) = actions.deferred_for
                && !is_deferred
            {
                warn!(
                    ?wait,
                    "another client keeps changing the Node's condition, label or taint; the next correction is deferred"
                );
            }
            is_deferred = actions.deferred_for.is_some();
            if actions.update.is_none() && actions.taint.is_none() {
                if matches!(round, Round::Completed(_)) && reconciler.desired().is_some() {
                    shared.set_ready();
                }
                progress.succeeded();
            } else if not_before <= Instant::now() {
                match write(&context, &node, &actions).await {
                    Ok(()) => {
                        backoff.reset();
                        // The response is compared at once.
                        continue;
                    }
                    Err(error) => {
                        let delay = backoff.next_delay(api.retry_after());
                        warn!(%error, ?delay, "the Node can't be updated, retrying");
                        progress.failed(&error);
                        not_before = Instant::now() + delay;
                    }
                }
            }
        } else {
            progress.failed(&"the Node isn't known yet");
        }
        let wait = not_before.saturating_duration_since(Instant::now());
        tokio::select! {
            _ = rounds.changed() => {}
            _ = nodes.changed() => {}
            () = sleep(if wait.is_zero() { RESYNC } else { wait.min(RESYNC) }) => {}
        }
    }
}

async fn write(context: &Context, node: &NodeState, actions: &Actions) -> Result<(), ApiError> {
    let Context { shared, writer, .. } = context;
    let mut latest = node.clone();
    if let Some(update) = &actions.update {
        let result = writer.update(update).await;
        shared.metrics.record_update(update.cause, result.is_ok());
        latest = result?;
        let (condition, cause) = (&update.condition, update.cause.as_str());
        // A field `message` would replace the text of the log line.
        let (status, reason, details) = (condition.status.as_str(), &condition.reason, &condition.message);
        if update.cause == WriteCause::Correction {
            warn!(status, reason, details, cause, "updated the Node, which another client had changed");
        } else {
            info!(status, reason, details, cause, "updated the Node");
        }
        shared.set_node(latest.clone());
    }
    if let Some(tainted) = actions.taint {
        let result = writer.set_taint(&latest, tainted).await;
        shared.metrics.record_taint(result.is_ok());
        shared.set_node(result?);
        info!(tainted, "changed the taint");
    }
    Ok(())
}

fn to_event(event: &NodeEvent, node: &str) -> Event {
    let checks: Vec<String> =
        event.checks.iter().map(|(name, reason)| format!("{}={}", name.as_str(), reason.as_str())).collect();
    let annotations =
        if checks.is_empty() { BTreeMap::new() } else { BTreeMap::from([(CHECKS, checks.join(","))]) };
    Event {
        regarding: node_reference(node),
        warning: event.warning,
        reason: event.reason,
        message: event.message.clone(),
        annotations,
        is_state: false,
    }
}
