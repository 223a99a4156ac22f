//! The watches and the controllers.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PartialObjectMeta};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::controller::{Config as ControllerConfig, Controller};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Config, ResourceExt as _};
use swansong_clusterd::reset_config::LABEL;
use swansong_runtime::backoff::{Limits, WatchBackoff};
use swansong_runtime::kube::causes;
use tracing::{info, warn};

use crate::config_map::job_name;
use crate::decide::{Policy, needs_config_map};
use crate::job::{Job, JobKind, JobMetadata, prune};
use crate::metrics::{CONFIG_MAP, Metrics, Operation};
use crate::reconcile::{Context, on_error, reconcile};

/// Objects per page of a list, which bounds the memory that it takes.
const PAGE_SIZE: u32 = 50;

/// Seconds until a watch is renewed. kube's watcher ends a silent one five seconds later.
const WATCH_TIMEOUT: u32 = 110;

/// Delays after errors of a watch. A kind that the cluster doesn't define is noticed within the longest.
const WATCH_BACKOFF: Limits = Limits { first: Duration::from_millis(500), max: Duration::from_secs(20) };

/// Timeout of a single request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Concurrent reconciles per kind of job, and so requests in flight.
const CONCURRENCY: u16 = 2;

/// Why the controller ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The client of the API server can't be created.
    #[error("no client of the API server: {}", causes(.0))]
    Client(#[from] kube::Error),
    /// A stream of kube's runtime ended, which none should.
    #[error("the watches ended")]
    WatchesEnded,
}

/// The jobs of one kind that need a ConfigMap, and the queue of their controller.
struct Jobs {
    resource: ApiResource,
    store: Store<JobMetadata>,
    queue: UnboundedSender<ObjectRef<JobMetadata>>,
}

/// Runs the controller.
///
/// It needs `get`, `list` and `watch` of both kinds of job, `get`, `list`, `watch` and `create` of ConfigMaps, `get` of
/// namespaces, and `create` of Events.
///
/// # Errors
///
/// When the client can't be created, or a watch ends unexpectedly. API errors are retried.
pub async fn run(
    mut config: Config,
    policy: Policy,
    metrics: Metrics,
) -> Result<Infallible, ControllerError> {
    let watches = Client::try_from(config.clone())?;
    // Watches are silent for longer than a request may take.
    config.read_timeout = Some(REQUEST_TIMEOUT);
    config.reset_reader_on_write = true;
    run_with(watches, &Client::try_from(config)?, &policy, &metrics).await;
    Err(ControllerError::WatchesEnded)
}

async fn run_with(watches: Client, requests: &Client, policy: &Policy, metrics: &Metrics) {
    metrics.reset_watches();
    let context = |kind| Arc::new(Context::new(kind, requests.clone(), policy.clone(), metrics.clone()));
    let (ascend_jobs, ascend_controller) = controller(watches.clone(), context(JobKind::AscendJob));
    let (volcano_jobs, volcano_controller) = controller(watches.clone(), context(JobKind::VolcanoJob));
    tokio::select! {
        () = ascend_controller => {}
        () = volcano_controller => {}
        () = dispatch(config_maps(watches, metrics.clone()), [ascend_jobs, volcano_jobs]) => {}
    }
}

/// The controller of one kind of job.
fn controller(client: Client, context: Arc<Context>) -> (Jobs, impl Future<Output = ()>) {
    let resource = context.kind.resource();
    let writer = Writer::new(resource.clone());
    let store = writer.as_reader();
    let (queue, requests) = unbounded();
    let triggers = new_jobs(client, writer, Arc::clone(&context));
    let run = Controller::for_stream_with(triggers, store.clone(), resource.clone())
        .reconcile_on(requests)
        .with_config(ControllerConfig::default().concurrency(CONCURRENCY))
        .run(reconcile, |job, error, context| on_error(&job, error, &context), context)
        // `on_error` logs failures. Other errors are reconciles of jobs that were deleted meanwhile.
        .for_each(|_| ready(()));
    (Jobs { resource, store, queue }, run)
}

/// Caches the jobs that need a ConfigMap and yields each of them once. Later changes of a job don't matter, except those
/// that end or renew its need.
fn new_jobs(
    client: Client,
    writer: Writer<JobMetadata>,
    context: Arc<Context>,
) -> impl Stream<Item = watcher::Result<JobMetadata>> {
    let jobs = Api::all_with(client, &context.kind.resource());
    let mut report =
        WatchReport { kind: context.kind.into(), metrics: context.metrics.clone(), problem: None };
    let (kind, triggers) = (context.kind, context.policy.triggers.clone());
    let is_needed = move |job: &JobMetadata| {
        needs_config_map(&Job { kind, metadata: &job.metadata, is_finished: false }, &triggers)
    };
    let store = writer.as_reader();
    watcher(jobs, watch_config())
        .backoff(WatchBackoff::new(WATCH_BACKOFF))
        .inspect(move |event| report.observe(event))
        .modify(prune)
        .try_filter_map(move |event| {
            ready(Ok(match event {
                Event::Apply(job) if !is_needed(&job) => Some(Event::Delete(job)),
                Event::InitApply(job) if !is_needed(&job) => None,
                event => Some(event),
            }))
        })
        .reflect(writer)
        .flat_map(move |event| {
            let is_new = |job: &JobMetadata| context.add(&job.uid().unwrap_or_default());
            stream::iter(match event {
                Ok(Event::Apply(job)) => Vec::from_iter(is_new(&job).then_some(job)),
                Ok(Event::Delete(job)) => {
                    context.remove(&job.uid().unwrap_or_default());
                    Vec::new()
                }
                // The store has the objects of a list when it is complete.
                Ok(Event::InitDone) => {
                    let jobs = store.state();
                    let uids: HashSet<&str> =
                        jobs.iter().filter_map(|job| job.metadata.uid.as_deref()).collect();
                    context.retain(&uids);
                    jobs.iter().filter(|job| is_new(job)).map(|job| JobMetadata::clone(job)).collect()
                }
                _ => Vec::new(),
            })
        })
        .map(Ok)
}

/// The watch of the ConfigMaps with the label.
fn config_maps(
    client: Client,
    metrics: Metrics,
) -> impl Stream<Item = watcher::Result<Event<PartialObjectMeta<ConfigMap>>>> {
    let labelled = watch_config().labels(&format!("{}={}", LABEL.0, LABEL.1));
    let mut report = WatchReport { kind: CONFIG_MAP, metrics, problem: None };
    watcher(Api::all(client), labelled)
        .backoff(WatchBackoff::new(WATCH_BACKOFF))
        .inspect(move |event| report.observe(event))
}

/// Queues the jobs whose ConfigMap changed or was deleted, and all jobs after a list, since a ConfigMap may have been
/// deleted while the watch was interrupted.
async fn dispatch(
    events: impl Stream<Item = watcher::Result<Event<PartialObjectMeta<ConfigMap>>>>,
    kinds: [Jobs; 2],
) {
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        for jobs in &kinds {
            match &event {
                Ok(Event::Apply(config_map) | Event::Delete(config_map)) => jobs.queue_owner(config_map),
                Ok(Event::InitDone) => jobs.queue_all(),
                _ => {}
            }
        }
    }
}

impl Jobs {
    fn queue_owner(&self, config_map: &PartialObjectMeta<ConfigMap>) {
        let (name, namespace) = (config_map.name_any(), config_map.namespace().unwrap_or_default());
        let Some(job) = job_name(&name) else { return };
        let job = ObjectRef::new_with(job, self.resource.clone()).within(&namespace);
        if self.store.get(&job).is_some() {
            // Fails only if the controller has ended, and `run` with it.
            let _ = self.queue.unbounded_send(job);
        }
    }

    fn queue_all(&self) {
        for job in self.store.state() {
            let _ = self.queue.unbounded_send(ObjectRef::from_obj_with(&*job, self.resource.clone()));
        }
    }
}

/// Logs and counts what a watch reports of itself.
struct WatchReport {
    kind: &'static str,
    metrics: Metrics,
    /// The error logged last; a watch is retried forever.
    problem: Option<String>,
}

impl WatchReport {
    fn observe<K>(&mut self, event: &watcher::Result<Event<K>>) {
        match event {
            Ok(Event::InitDone) => {
                self.problem = None;
                self.metrics.set_watching(self.kind, true);
                info!(kind = self.kind, "watching");
            }
            Ok(_) => {}
            // The watch is too old; a new list follows.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => {}
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: &watcher::Error) {
        let is_list = matches!(error, watcher::Error::InitialListFailed(_));
        if is_list {
            self.metrics.set_watching(self.kind, false);
        }
        let is_undefined = matches!(
            error,
            watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
        );
        if !is_undefined {
            self.metrics.api_error(Operation::Watch);
        }
        let problem = causes(error);
        if self.problem.as_ref() == Some(&problem) {
            return;
        }
        if is_undefined {
            info!(kind = self.kind, "the cluster doesn't define this kind; checking again later");
        } else {
            warn!(kind = self.kind, problem, "watch failed");
        }
        self.problem = Some(problem);
    }
}

fn watch_config() -> watcher::Config {
    watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_TIMEOUT)
}

#[cfg(test)]
mod tests;
