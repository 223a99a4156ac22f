//! Repeats the scan of the processes of injected Pods, and reports settled verdicts.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use std::sync::Arc;
use swansong_runtime::events::{Event, EventSender, container_reference};
use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::Context;
use crate::host::Machine;
use crate::preload::{ContainerVerdict, Debouncer, Outcome, PodVerdict, scan};
use crate::readiness::truncate;

/// The annotation of Events with the verdict's reason.
const REASON: &str = "swansong.dev/reason";

/// Scans the processes of injected Pods.
pub(super) async fn run(context: Context, progress: Progress) -> Result<Infallible, TaskError> {
    let Context { shared, config, host_root, events, .. } = context;
    let proc = host_root.join("proc");
    let started = Instant::now();
    let mut debouncer = Debouncer::new(config.preload.grace);
    loop {
        progress.alive();
        let pods = shared.pods.borrow().clone();
        let scan_started = Instant::now();
        let verdicts = if pods.is_empty() {
            Vec::new()
        } else {
            let (proc, grace) = (proc.clone(), config.preload.grace);
            // If a container's file system hangs, this task waits and counts as stuck.
            let scanned = spawn_blocking(move || scan(&proc, &pods, grace, Machine::HOST)).await;
            scanned
                .map_err(|panic| TaskError(panic.to_string()))?
                .map_err(|error| TaskError(error.to_string()))?
        };
        report(&mut debouncer, &verdicts, started.elapsed(), &events);
        shared.metrics.record_scan(&verdicts, scan_started.elapsed());
        shared.verdicts.send_replace(Arc::new(verdicts));
        progress.succeeded();
        sleep(config.preload.interval).await;
    }
}

fn report(
    debouncer: &mut Debouncer<(String, String)>,
    verdicts: &[PodVerdict],
    now: Duration,
    events: &EventSender,
) {
    for pod in verdicts {
        for container in &pod.containers {
            let key = (pod.uid.clone(), container.name.clone());
            if debouncer.record(key, &container.verdict, now)
                && let Some(event) = event(pod, container)
            {
                events.send(event);
            }
        }
    }
    debouncer.retain(|(uid, name)| {
        let pod = verdicts.iter().find(|pod| pod.uid == *uid);
        pod.is_some_and(|pod| pod.containers.iter().any(|container| container.name == *name))
    });
}

/// An unknown verdict has no Event, since its reason is usually the agent's permissions and not the Pod.
fn event(pod: &PodVerdict, ContainerVerdict { name, verdict }: &ContainerVerdict) -> Option<Event> {
    let reason = match verdict.outcome {
        Outcome::Live => "PreloadLive",
        Outcome::PartlyLive => "PreloadPartlyLive",
        Outcome::NotLive => "PreloadNotLive",
        Outcome::Unknown => return None,
    };
    let mut message = format!("{} ({})", verdict.message, verdict.reason.as_str());
    truncate(&mut message);
    Some(Event {
        regarding: container_reference(&pod.namespace, &pod.name, &pod.uid, name),
        warning: verdict.outcome != Outcome::Live,
        reason,
        message,
        annotations: BTreeMap::from([(REASON, verdict.reason.as_str().to_owned())]),
        is_state: true,
    })
}
