//! Rehearses a fault's way to ClusterD when the Node's annotation asks for it, and writes the result beside it.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use swansong_api::node::RehearsalResult;
use swansong_faults::unix_millis;
use swansong_runtime::backoff::Backoff;
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::time::sleep;
use tracing::{info, warn};

use super::Context;
use crate::finding::Status;
use crate::rehearsal::{Rehearsal, Report};

/// The longest time between two comparisons.
const RESYNC: Duration = Duration::from_secs(30);

/// Answers each request once.
pub(super) async fn run(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let Context { shared, api, writer, timing, .. } = &context;
    let mut nodes = shared.node.subscribe();
    let mut backoff = Backoff::new(timing.backoff);
    let mut finished: Option<RehearsalResult> = None;
    loop {
        progress.alive();
        let request = nodes.borrow_and_update().as_ref().and_then(|node| node.open_rehearsal());
        let mut wait = RESYNC;
        if let Some(request) = request {
            let result = match finished.take().filter(|result| result.request == request) {
                Some(result) => result,
                None => rehearse(&context, request).await,
            };
            shared.metrics.record_rehearsal(&result);
            match writer.set_rehearsal(&result).await {
                Ok(state) => {
                    info!(status = result.status, details = result.message, "rehearsed the way of a fault");
                    shared.set_node(state);
                    backoff.reset();
                    progress.succeeded();
                }
                Err(error) => {
                    wait = backoff.next_delay(api.retry_after());
                    warn!(%error, ?wait, "the result of a rehearsal can't be written, retrying");
                    progress.failed(&error);
                    finished = Some(result);
                    sleep(wait).await;
                    continue;
                }
            }
        } else {
            progress.succeeded();
        }
        tokio::select! {
            _ = nodes.changed() => {}
            () = sleep(wait) => {}
        }
    }
}

async fn rehearse(context: &Context, request: String) -> RehearsalResult {
    let rehearsal = Rehearsal {
        config: (*context.config).clone(),
        host_root: context.host_root.clone(),
        node: context.shared.node_name.clone(),
        client: context.api.client().clone(),
        force: false,
    };
    let (status, message) = match rehearsal.run(pending(), |_| {}).await {
        Ok(report) => (report.status, first_problem(&report)),
        Err(error) => (Status::Unknown, error.to_string()),
    };
    RehearsalResult { request, at: unix_millis(), status: status.as_str().to_owned(), message }
}

/// The first step that didn't pass.
fn first_problem(report: &Report) -> String {
    let step = report.steps.iter().find(|step| step.status != Status::Pass);
    step.map_or_else(
        || "every step passed".to_owned(),
        |step| format!("{}: {}", <&str>::from(step.step), step.message),
    )
}
