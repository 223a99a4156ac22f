//! The tasks that tell ClusterD of faults, where that is configured.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd::Grpc;
use swansong_clusterd::grpc::AddressError;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::relayed;
use super::status::Shared;
use super::task::supervise;
use crate::config::{Config, RelaySettings};
use crate::fault::source::{Out, Source};
use crate::node::{ApiServer, Events, Timing};
use crate::relay::{self, ConfigMapSink, Inputs, Parts, Queue, Routes, Story};

/// What waits between the sources and the relay: a burst of all devices. A source that finds no room waits.
const ROOM: usize = 1024;
/// A source that doesn't move for so long is stuck: the slowest looks every five minutes.
const SOURCE_PATIENCE: Duration = Duration::from_mins(16);
const RELAY_PATIENCE: Duration = Duration::from_mins(2);

/// What they share with the other tasks.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) shared: Arc<Shared>,
    pub(super) config: Arc<Config>,
    pub(super) host_root: PathBuf,
    pub(super) api: Arc<ApiServer>,
    pub(super) timing: Arc<Timing>,
    pub(super) events: Events,
}

/// ClusterD at its configured address.
pub(super) fn clusterd(config: &Config) -> Result<Grpc, AddressError> {
    Grpc::new(&format!("http://{}", config.clusterd.address), config.clusterd.timeout)
}

/// Starts all of them.
pub(super) fn start(all: &mut JoinSet<Infallible>, common: &Common, settings: &RelaySettings, grpc: Grpc) {
    let Common { shared, config, api, timing, events, .. } = common.clone();
    let config_map = settings.config_map_namespace.as_ref().map(|namespace| ConfigMapSink {
        api: Arc::clone(&api),
        namespace: namespace.clone(),
        node: shared.node_name.clone(),
    });
    let routes = Routes { grpc, config_map };
    let (out, queue) = mpsc::channel(ROOM);
    let queue: Queue = Arc::new(Mutex::new(queue));
    let (told, telling) = watch::channel(None);
    let parts = Arc::new(Parts {
        node: shared.node_name.clone(),
        folder: settings.outbox.clone(),
        settings: settings.settings.clone(),
        rules: config.faults.rules.clone(),
        routes: Arc::new(routes),
        api: Arc::clone(&api),
        inputs: Inputs {
            pods: shared.npu_pods.subscribe(),
            device_plugin: shared.device_plugin.subscribe(),
            classes: shared.classes.subscribe(),
            node: shared.seen.subscribe(),
            npus: config.npus,
        },
        story: Story::new(shared.node_name.clone(), events),
        metrics: Arc::clone(&shared.metrics.relay),
        told,
        view: shared.faults.clone(),
        begun: Instant::now(),
    });
    all.spawn(supervise(shared.tasks.add("relay", RELAY_PATIENCE), move |progress| {
        relay::run(Arc::clone(&parts), Arc::clone(&queue), progress)
    }));
    let heartbeat = config.readiness.heartbeat;
    let patience = timing.last_pause.saturating_mul(3) + Duration::from_mins(1);
    let task = shared.tasks.add("relayed", patience);
    all.spawn(supervise(task, move |progress| {
        let (shared, api, timing) = (Arc::clone(&shared), Arc::clone(&api), Arc::clone(&timing));
        relayed::run(shared, api, timing, heartbeat, telling.clone(), progress)
    }));
    sources(all, common, settings, &out);
}

fn sources(all: &mut JoinSet<Infallible>, common: &Common, settings: &RelaySettings, out: &Out) {
    let _ = (all, common, settings, out);
}

fn source<S: Source>(all: &mut JoinSet<Infallible>, common: &Common, source: S, out: &Out) {
    let (source, out) = (Arc::new(source), out.clone());
    let task = common.shared.tasks.add(S::NAME, SOURCE_PATIENCE);
    all.spawn(supervise(task, move |progress| Arc::clone(&source).run(out.clone(), progress)));
}
