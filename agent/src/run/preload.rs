//! Is the preload live in the pods of this node? Again and again.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swansong_runtime::supervisor::{Progress, TaskError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::status::Shared;
use crate::config::Config;
use crate::host::Machine;
use crate::node::{About, Events, Outgoing};
use crate::preload::{ContainerVerdict, Debouncer, Outcome, PodVerdict, scan};
use crate::readiness::truncate;

/// The annotation of Events that names the verdict's reason.
const WHY: &str = "swansong.dev/why";

/// Looks at the processes of injected pods and tells what has settled.
pub(super) async fn run(
    shared: Arc<Shared>,
    config: Arc<Config>,
    host_root: PathBuf,
    events: Events,
    progress: Progress,
) -> Result<Infallible, TaskError> {
    let proc = host_root.join("proc");
    let begun = Instant::now();
    let mut settler = Debouncer::new(config.preload.grace);
    loop {
        progress.alive();
        let pods = shared.pods.borrow().clone();
        let start = Instant::now();
        let verdicts = if pods.is_empty() {
            Vec::new()
        } else {
            let (proc, grace) = (proc.clone(), config.preload.grace);
            // A file system of a container may hang; then this waits, and is seen to be stuck.
            let scanned = spawn_blocking(move || scan(&proc, &pods, grace, Machine::HOST)).await;
            scanned
                .map_err(|panic| TaskError(panic.to_string()))?
                .map_err(|error| TaskError(error.to_string()))?
        };
        tell(&mut settler, &verdicts, begun.elapsed(), &events);
        shared.metrics.scanned(&verdicts, start.elapsed());
        shared.verdicts.send_replace(Arc::new(verdicts));
        progress.succeeded();
        sleep(config.preload.interval).await;
    }
}

fn tell(settler: &mut Debouncer<(String, String)>, verdicts: &[PodVerdict], now: Duration, events: &Events) {
    for pod in verdicts {
        for container in &pod.containers {
            let key = (pod.uid.clone(), container.name.clone());
            if settler.record(key, &container.verdict, now)
                && let Some(event) = event(pod, container)
            {
                events.tell(event);
            }
        }
    }
    settler.retain(|(uid, name)| {
        let pod = verdicts.iter().find(|pod| pod.uid == *uid);
        pod.is_some_and(|pod| pod.containers.iter().any(|container| container.name == *name))
    });
}

/// What the agent can't tell is in metrics and status: an Event on every pod would accuse the pods of it.
fn event(pod: &PodVerdict, ContainerVerdict { name, verdict }: &ContainerVerdict) -> Option<Outgoing> {
    let reason = match verdict.outcome {
        Outcome::Live => "PreloadLive",
        Outcome::PartlyLive => "PreloadPartlyLive",
        Outcome::NotLive => "PreloadNotLive",
        Outcome::Unknown => return None,
    };
    let mut message = format!("{} ({})", verdict.message, verdict.reason.as_str());
    truncate(&mut message);
    Some(Outgoing {
        about: About::Container {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            container: name.clone(),
        },
        warning: verdict.outcome != Outcome::Live,
        reason,
        message,
        annotations: BTreeMap::from([(WHY, verdict.reason.as_str().to_owned())]),
        once: true,
    })
}
