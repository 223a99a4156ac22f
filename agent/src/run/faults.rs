//! The tasks that tell ClusterD of faults, where that is configured.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd_client::AddressError;
use swansong_clusterd_client::GrpcClient;
use swansong_gateway::client::{self, GatewayClient};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use super::{Context, faults_condition};
use crate::api::Timing;
use crate::config::{Config, RelaySettings};
use crate::fault::source::{Dcmi, DcmiSettings, DeviceNodes, DevicePluginWatch, Out, Source};
use crate::fault::{Clock, LevelWatch};
use crate::relay::{self, ByRelay, ConfigMapSink, Episode, Inputs, Parts, Queue, Routes, Story};
use swansong_runtime::supervisor::supervise;

/// What waits between the sources and the relay: a burst of all devices. A source that finds no room waits.
const ROOM: usize = 1024;
/// A source that doesn't move for so long is stuck: the slowest looks every five minutes.
const SOURCE_PATIENCE: Duration = Duration::from_mins(16);
/// The relay answers when ClusterD has.
const VIA_PATIENCE: Duration = Duration::from_secs(45);
const RELAY_PATIENCE: Duration = Duration::from_mins(2);

/// ClusterD at its configured address.
pub(super) fn clusterd(config: &Config) -> Result<GrpcClient, AddressError> {
    GrpcClient::new(&format!("http://{}", config.checks.clusterd.address), config.checks.clusterd.timeout)
}

/// Starts all of them.
pub(super) fn start(
    all: &mut JoinSet<Infallible>,
    context: &Context,
    settings: &RelaySettings,
    grpc: GrpcClient,
) {
    let Context { shared, config, server: api, timing, events, .. } = context.clone();
    let timing = Arc::new(Timing { watch: timing.watch, backoff: timing.backoff, ..Timing::default() });
    let config_map = settings.config_map_namespace.as_ref().map(|namespace| ConfigMapSink {
        api: Arc::clone(&api),
        namespace: namespace.clone(),
        node: shared.node_name.clone(),
    });
    let relay = settings.gateway.as_ref().map(|gateway| {
        ByRelay::new(GatewayClient::new(client::Settings {
            address: gateway.address.clone(),
            server_name: gateway.server_name().to_owned(),
            ca_file: gateway.ca_file.clone(),
            token_file: gateway.token_file.clone(),
            connect_timeout: config.checks.clusterd.timeout,
            request_timeout: VIA_PATIENCE,
        }))
    });
    let routes = Routes { relay, grpc, config_map };
    let clock = Clock::start();
    let device_plugin =
        DevicePluginWatch::new(&shared.node_name, Arc::clone(&api), Arc::clone(&timing), clock);
    let levels = Arc::new(LevelWatch::new(&config.faults));
    let (remembered, remembering) = watch::channel(None);
    let (out, queue) = mpsc::channel(ROOM);
    let queue: Queue = Arc::new(Mutex::new(queue));
    let (told, telling) = watch::channel(None);
    let parts = Arc::new(Parts {
        node: shared.node_name.clone(),
        folder: settings.outbox.clone(),
        settings: settings.settings.clone(),
        routes: Arc::new(routes),
        api: Arc::clone(&api),
        inputs: Inputs {
            pods: shared.npu_pods.subscribe(),
            device_plugin: device_plugin.view(),
            levels: levels.levels(),
            node: shared.node.subscribe(),
            npus: config.checks.npus,
        },
        story: Story::new(shared.node_name.clone(), events),
        metrics: Arc::clone(&shared.metrics.relay),
        told,
        view: shared.faults.clone(),
        remembered,
        clock,
        sources: sources(settings),
    });
    all.spawn(supervise(shared.tasks.add("relay", RELAY_PATIENCE), move |progress| {
        relay::run(Arc::clone(&parts), Arc::clone(&queue), progress)
    }));
    let timeout = timing.backoff.max.saturating_mul(3) + Duration::from_mins(1);
    context.spawn(all, "faults-condition", timeout, move |context, progress| {
        faults_condition::run(context, telling.clone(), progress)
    });
    let timeout = timing.watch.saturating_mul(2) + timing.backoff.max + Duration::from_mins(1);
    all.spawn(supervise(shared.tasks.add("levels", timeout), move |progress| {
        Arc::clone(&levels).run(Arc::clone(&api), Arc::clone(&timing), progress)
    }));
    source(all, context, device_plugin, &out);
    device_nodes(all, context, &out, &remembering);
    if settings.dcmi {
        let settings = DcmiSettings::new(context.host_root.clone(), Arc::clone(&context.config));
        source(all, context, Dcmi::new(settings), &out);
    }
}

/// The names of all that says what stands.
fn sources(settings: &RelaySettings) -> Vec<&'static str> {
    let dcmi = settings.dcmi.then_some(Dcmi::NAME);
    [relay::RULES, DeviceNodes::NAME].into_iter().chain(dcmi).collect()
}

/// What was there before this process, and isn't now, is known by the outbox alone.
fn device_nodes(
    all: &mut JoinSet<Infallible>,
    context: &Context,
    out: &Out,
    remembering: &watch::Receiver<Option<Arc<Vec<Episode>>>>,
) {
    let nodes = Arc::new(DeviceNodes::new(&context.host_root, Arc::clone(&context.config)));
    let (out, remembering) = (out.clone(), remembering.clone());
    let task = context.shared.tasks.add_optional(DeviceNodes::NAME, SOURCE_PATIENCE);
    all.spawn(supervise(task, move |progress| {
        let (nodes, out, mut remembering) = (Arc::clone(&nodes), out.clone(), remembering.clone());
        async move {
            // An outbox that doesn't open is told by its own task.
            if let Ok(remembered) = remembering.wait_for(Option::is_some).await {
                let standing = remembered.iter().flat_map(|all| all.iter());
                let own = standing.filter(|episode| episode.source == DeviceNodes::NAME);
                nodes.remember(own.map(|episode| (episode.subject, episode.code.clone())));
            }
            nodes.run(out, progress).await
        }
    }));
}

fn source<S: Source>(all: &mut JoinSet<Infallible>, context: &Context, source: S, out: &Out) {
    let (source, out) = (Arc::new(source), out.clone());
    let task = context.shared.tasks.add_optional(S::NAME, SOURCE_PATIENCE);
    all.spawn(supervise(task, move |progress| Arc::clone(&source).run(out.clone(), progress)));
}
