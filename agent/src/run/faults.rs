//! The tasks of the fault pipeline.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use swansong_fault_model::{Fault, RULES};
use swansong_faults::sources::{Dcmi, DcmiSettings, DevicePluginWatch, Source, Updates};
use swansong_faults::{Clock, Cluster, FaultEvents, Inputs, LevelWatch, Outputs, Parts, Queue, Transports};
use swansong_runtime::supervisor::supervise;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use super::{Context, dumps, faults_condition, rehearsal};
use crate::dcmi_library;
use crate::device_nodes::DeviceNodes;
use crate::pod_processes::PodProcesses;

/// The updates that may wait for the pipeline: a burst of all devices. A source waits while the queue is full.
const QUEUE: usize = 1024;
/// The slowest source polls every five minutes.
const SOURCE_TIMEOUT: Duration = Duration::from_mins(16);
const PIPELINE_TIMEOUT: Duration = Duration::from_mins(2);
/// A rehearsal waits for ClusterD in several steps, the longest of a minute.
const REHEARSAL_TIMEOUT: Duration = Duration::from_mins(10);

/// Starts the pipeline and its sources.
pub(super) fn start(all: &mut JoinSet<Infallible>, context: &Context, transports: Transports) {
    let Context { shared, config, api, timing, events, .. } = context;
    let settings = &config.faults;
    let clock = Clock::start();
    let device_plugin = Arc::new(DevicePluginWatch::new(&shared.node_name, api.client().clone(), clock));
    let levels = Arc::new(LevelWatch::new(settings.levels.clone()));
    let (updates, queue) = mpsc::channel(QUEUE);
    let queue: Queue = Arc::new(Mutex::new(queue));
    let (condition, desired_condition) = watch::channel(None);
    let (restored_faults, restored) = watch::channel(None);
    let (nodes, npus) = (shared.node.subscribe(), config.checks.npus);
    let parts = Arc::new(Parts {
        node: shared.node_name.clone(),
        folder: settings.state_folder.clone(),
        settings: settings.pipeline.clone(),
        transports,
        cluster: Cluster::new(api.client().clone(), settings.config_map_namespace.clone()),
        inputs: Inputs {
            pods: shared.npu_pods.subscribe(),
            activity: shared.activity.subscribe(),
            processes: Arc::new(PodProcesses::new(context.host_root.join("proc"))),
            device_plugin: device_plugin.tracker(),
            levels: levels.levels(),
            devices: Arc::new(move || {
                let capacity = nodes.borrow().as_ref().and_then(|node| node.npus);
                // Physical ids start at 0.
                (0..npus.or(capacity).unwrap_or(0)).take(32).collect()
            }),
        },
        outputs: Outputs { condition, status: shared.faults.clone(), restored: restored_faults },
        events: FaultEvents::new(shared.node_name.clone(), events.clone()),
        metrics: Arc::clone(&shared.metrics.faults),
        clock,
        sources: [RULES, DeviceNodes::NAME].into_iter().chain(settings.dcmi.then_some(Dcmi::NAME)).collect(),
    });
    context.spawn(all, "faults", PIPELINE_TIMEOUT, move |_, progress| {
        swansong_faults::run(Arc::clone(&parts), Arc::clone(&queue), progress)
    });
    context.spawn(all, "dumps", PIPELINE_TIMEOUT, dumps::run);
    context.spawn(all, "rehearsal", REHEARSAL_TIMEOUT, rehearsal::run);
    let timeout = timing.backoff.max.saturating_mul(3) + Duration::from_mins(1);
    context.spawn(all, "faults-condition", timeout, move |context, progress| {
        faults_condition::run(context, desired_condition.clone(), progress)
    });
    let timeout = timing.watch.saturating_mul(2) + timing.backoff.max + Duration::from_mins(1);
    context.spawn(all, "levels", timeout, move |context, progress| {
        let levels = Arc::clone(&levels);
        async move { Ok(levels.run(context.api.client().clone(), progress).await) }
    });
    context.spawn(all, "device-plugin", timeout, move |_, progress| {
        let device_plugin = Arc::clone(&device_plugin);
        async move { Ok(device_plugin.run(progress).await) }
    });
    spawn_device_nodes(all, context, &updates, &restored);
    if settings.dcmi {
        let find_library = dcmi_library::finder(context.host_root.clone(), config.checks.clone());
        spawn_source(all, context, Dcmi::new(DcmiSettings::new(find_library)), updates);
    }
}

/// Which device nodes existed before this process is known from the state only.
fn spawn_device_nodes(
    all: &mut JoinSet<Infallible>,
    context: &Context,
    updates: &Updates,
    restored: &watch::Receiver<Option<Arc<Vec<Fault>>>>,
) {
    let nodes = Arc::new(DeviceNodes::new(
        &context.host_root,
        Arc::new(context.config.checks.clone()),
        context.config.faults.device_interval,
    ));
    let (updates, restored) = (updates.clone(), restored.clone());
    let task = context.shared.tasks.add_optional(DeviceNodes::NAME, SOURCE_TIMEOUT);
    all.spawn(supervise(task, move |progress| {
        let (nodes, updates, mut restored) = (Arc::clone(&nodes), updates.clone(), restored.clone());
        async move {
            // The pipeline reports a state that can't be opened.
            if let Ok(restored) = restored.wait_for(Option::is_some).await {
                let faults = restored.iter().flat_map(|faults| faults.iter());
                let own = faults.filter(|fault| fault.sources.contains(DeviceNodes::NAME));
                nodes.restore(own.map(|fault| (fault.subject, fault.code.clone())));
            }
            nodes.run(updates, progress).await
        }
    }));
}

fn spawn_source<S: Source>(all: &mut JoinSet<Infallible>, context: &Context, source: S, updates: Updates) {
    let source = Arc::new(source);
    let task = context.shared.tasks.add_optional(S::NAME, SOURCE_TIMEOUT);
    all.spawn(supervise(task, move |progress| Arc::clone(&source).run(updates.clone(), progress)));
}
