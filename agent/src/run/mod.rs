//! The agent that keeps running: what is looked at, decided, told, and how it is known to live.
//!
//! ```text
//! check (a thread) ┐
//! clusterd         ├→ tell → node, Events        preload (a thread) → Events
//! node (watch)     ┘                             pods (watch) ┘
//!
//! dcmi, devices, device-plugin (sources) → relay → ClusterD, Events;  relay → relayed → node
//! ```
//!
//! Each of these is a task that never ends by itself; one that does, or that doesn't move any more, fails `/healthz`.

mod check;
mod faults;
mod pods;
mod preload;
mod relayed;
mod serve;
mod status;
mod tell;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd_client::GrpcClient;
use swansong_runtime::supervisor::{Tasks, supervise};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use self::status::Shared;
use crate::config::Config;
use crate::host::HostRoot;
use crate::metrics::Metrics;
use crate::node::{ApiServer, NodeState, Recorder, Timing};

/// What an agent is made of.
#[derive(Debug)]
pub struct Parts {
    /// What is demanded of the host.
    pub config: Config,
    /// Where the host's file system is.
    pub host_root: PathBuf,
    /// The node's name.
    pub node: String,
    /// Where health, metrics and status are told.
    pub health_listen: SocketAddr,
    /// The API server.
    pub api: ApiServer,
    /// How patiently the API server is watched.
    pub timing: Timing,
}

/// The agent can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// ClusterD's address can't be used.
    #[error("clusterd.address: {0}")]
    Clusterd(#[from] swansong_clusterd_client::AddressError),
    /// The port can't be opened.
    #[error("{address} can't be listened on: {problem}; choose another by --health-listen")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        problem: io::Error,
    },
}

/// An agent with its port open.
pub struct Agent {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    /// ClusterD, where it is told of faults.
    clusterd: Option<GrpcClient>,
    parts: Parts,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("address", &self.address)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// Opens the port.
    pub async fn bind(parts: Parts) -> Result<Self, StartError> {
        let failed = |problem| StartError::Bind { address: parts.health_listen, problem };
        let listener = TcpListener::bind(parts.health_listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tasks = Tasks::default();
        let metrics = Arc::new(Metrics::new(&tasks));
        let boot_id = boot_id(&parts.host_root);
        let shared = Arc::new(Shared::new(parts.node.clone(), boot_id, tasks, metrics));
        let told = parts.config.faults.relay.enabled;
        let clusterd = told.then(|| faults::clusterd(&parts.config)).transpose()?;
        Ok(Self { listener, address, shared, clusterd, parts })
    }

    /// Where health, metrics and status are told, with the port that was chosen.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs until `stop` comes. What the node shows stays as it is: the next agent goes on from there.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, shared, clusterd, parts, .. } = self;
        let Parts { config, host_root, node, api, timing, .. } = parts;
        let (config, api, timing) = (Arc::new(config), Arc::new(api), Arc::new(timing));
        let (events, recorder) = Recorder::new(&node, Arc::clone(&shared.metrics));
        let recorder = Arc::new(Mutex::new(recorder));
        // One that hangs is told as such long before; the limit here is for what can't be told any more.
        let patience = |interval: Duration| interval.saturating_mul(3) + Duration::from_mins(1);
        let network = timing.watch.saturating_mul(2) + timing.backoff.max + Duration::from_mins(1);
        let mut all = JoinSet::new();

        {
            let (shared, config, api, root) =
                (shared.clone(), config.clone(), api.clone(), host_root.clone());
            all.spawn(supervise(
                shared.tasks.add("check", patience(config.checks.interval)),
                move |progress| {
                    check::run(shared.clone(), config.clone(), api.clone(), root.clone(), progress)
                },
            ));
        }
        if config.checks.clusterd.dial {
            let (shared, config) = (shared.clone(), config.clone());
            all.spawn(supervise(
                shared.tasks.add("clusterd", patience(config.checks.clusterd.interval)),
                move |progress| check::dial(shared.clone(), config.clone(), progress),
            ));
        }
        {
            let (shared, api, timing) = (shared.clone(), api.clone(), timing.clone());
            all.spawn(supervise(shared.tasks.add("node", network), move |progress| {
                tell::watch_node(shared.clone(), api.clone(), timing.clone(), progress)
            }));
        }
        {
            let (shared, api, timing) = (shared.clone(), api.clone(), timing.clone());
            all.spawn(supervise(shared.tasks.add("pods", network), move |progress| {
                pods::watch(shared.clone(), api.clone(), timing.clone(), progress)
            }));
        }
        {
            let (shared, api, config) = (shared.clone(), api.clone(), config.clone());
            let (timing, events) = (timing.clone(), events.clone());
            all.spawn(supervise(
                shared.tasks.add("tell", patience(Duration::from_mins(1))),
                move |progress| {
                    tell::run(
                        shared.clone(),
                        config.clone(),
                        api.clone(),
                        timing.clone(),
                        events.clone(),
                        progress,
                    )
                },
            ));
        }
        {
            let (shared, config, root) = (shared.clone(), config.clone(), host_root.clone());
            let events = events.clone();
            all.spawn(supervise(
                shared.tasks.add("preload", patience(config.preload.interval)),
                move |progress| {
                    preload::run(shared.clone(), config.clone(), root.clone(), events.clone(), progress)
                },
            ));
        }
        {
            let (api, timing) = (api.clone(), timing.clone());
            all.spawn(supervise(
                shared.tasks.add("events", patience(Duration::from_mins(6))),
                move |progress| {
                    let (recorder, api, timing) = (recorder.clone(), api.clone(), timing.clone());
                    async move { Err(never(recorder.lock().await.run(&api, &timing, &progress).await)) }
                },
            ));
        }
        if let Some(clusterd) = clusterd {
            let settings = &config.faults.relay.clone();
            let common = faults::Common {
                shared: shared.clone(),
                config: config.clone(),
                host_root,
                api,
                timing,
                events,
            };
            faults::start(&mut all, &common, settings, clusterd);
        }
        all.spawn(serve::serve(listener, shared));
        tokio::select! {
            () = stop => {}
            // Supervisors never end; that one did is a fault that a restart of the whole may mend.
            _ = all.join_next() => tracing::error!("a supervisor has ended; please report this"),
        }
        all.shutdown().await;
    }
}

/// What never comes fits everywhere.
const fn never<T>(never: std::convert::Infallible) -> T {
    match never {}
}

/// The number of the running kernel's boot. A kernel is shared by all containers, so any `/proc` will do.
fn boot_id(host_root: &std::path::Path) -> Option<String> {
    const PATH: &str = "proc/sys/kernel/random/boot_id";
    let read = |root: &std::path::Path| {
        let id = HostRoot::open(root).ok()?.read(PATH, 128).ok()?;
        let id = String::from_utf8(id).ok()?.trim().to_owned();
        (!id.is_empty()).then_some(id)
    };
    read(host_root).or_else(|| read(std::path::Path::new("/")))
}

/// What the node shows, as far as it is known.
type NodeSeen = watch::Sender<Option<Arc<NodeState>>>;
