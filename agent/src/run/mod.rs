//! The long-running agent: the tasks and what they share. Only this module connects the others.
//!
//! ```text
//! checks (a thread) ┐
//! clusterd          ├→ reconcile → Node, Events        preload (a thread) → Events
//! node (watch)      ┘                                  pods (watch) ┘
//!
//! dcmi, device-nodes, device-plugin (sources) → faults → ClusterD, Events;  faults → faults-condition → Node
//! ```
//!
//! Each is a supervised task. `/healthz` fails while one of them has ended or makes no progress.

mod checks;
mod dumps;
mod faults;
mod faults_condition;
mod node;
mod pods;
mod preload;
mod rehearsal;
mod serve;
mod shared;

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use swansong_clusterd_client::AddressError;
use swansong_faults::Transports;
use swansong_runtime::config::ConfigMetrics;
use swansong_runtime::events::{self, EventSender, EventWriter};
use swansong_runtime::supervisor::{Progress, TaskError, Tasks, supervise};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tracing::warn;

use self::shared::Shared;
use crate::config::Config;
use crate::host::HostRoot;
use crate::metrics::Metrics;
use crate::node::{ApiClient, NodeWriter, Timing};
use crate::transports::transports;

/// The component in Events.
const COMPONENT: &str = "swansong-agent";

/// Timeout of a request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What an agent needs.
#[derive(Debug)]
pub struct Parts {
    /// The agent's configuration. The tasks are restarted with each new one.
    pub config: watch::Receiver<Config>,
    /// The path of the host's file system.
    pub host_root: PathBuf,
    pub node: String,
    /// The address of health, metrics and status.
    pub health_listen: SocketAddr,
    /// The configuration of the API server's client.
    pub kube: kube::Config,
    /// Time limits of watches and retries.
    pub timing: Timing,
}

/// The agent can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// ClusterD's address is invalid.
    #[error("clusterd.address: {0}")]
    Clusterd(#[from] AddressError),
    /// The client configuration is invalid.
    #[error("no client of the API server can be made: {0}")]
    Client(#[from] kube::Error),
    /// The port can't be opened.
    #[error("{address} can't be listened on: {problem}; choose another by --health-listen")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        problem: io::Error,
    },
}

/// An agent with its port open.
pub struct Agent {
    listener: TcpListener,
    address: SocketAddr,
    context: Context,
    event_writer: Arc<Mutex<EventWriter>>,
    /// The transports to ClusterD, if faults are reported.
    transports: Option<Transports>,
    configs: watch::Receiver<Config>,
}

/// What all tasks share.
#[derive(Clone)]
struct Context {
    shared: Arc<Shared>,
    config: Arc<Config>,
    host_root: PathBuf,
    api: ApiClient,
    writer: NodeWriter,
    timing: Timing,
    events: EventSender,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Agent {
    /// Opens the port.
    pub async fn bind(parts: Parts) -> Result<Self, StartError> {
        let Parts { config: mut configs, host_root, node, health_listen, kube, timing } = parts;
        let config = configs.borrow_and_update().clone();
        let failed = |problem| StartError::Bind { address: health_listen, problem };
        let listener = TcpListener::bind(health_listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let api = ApiClient::new(kube, REQUEST_TIMEOUT)?;
        let tasks = Tasks::default();
        let metrics = Metrics::new(&tasks);
        metrics.config.record_load();
        let (events, event_writer) = events::channel(COMPONENT, &node, &metrics.events);
        let transports = configured_transports(&config, &api, &node)?;
        let context = Context {
            writer: NodeWriter::new(api.clone(), &node),
            shared: Arc::new(Shared::new(node, boot_id(&host_root), tasks, metrics)),
            config: Arc::new(config),
            host_root,
            api,
            timing,
            events,
        };
        let event_writer = Arc::new(Mutex::new(event_writer));
        Ok(Self { listener, address, context, event_writer, transports, configs })
    }

    /// The address of health, metrics and status, with the chosen port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The metrics of the configuration file.
    pub fn config_metrics(&self) -> ConfigMetrics {
        self.context.shared.metrics.config.clone()
    }

    /// Runs until `stop` completes. The Node remains as it is; the next agent continues from it.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, mut context, event_writer, mut transports, mut configs, .. } = self;
        let mut server = JoinSet::new();
        server.spawn(serve::serve(listener, Arc::clone(&context.shared)));
        let mut stop = pin!(stop);
        loop {
            let mut tasks = context.start_tasks(&event_writer, transports.take());
            let next = tokio::select! {
                () = &mut stop => None,
                next = context.next_config(&mut configs) => Some(next),
                // Supervisors never end; a restart of the process may fix it.
                _ = tasks.join_next() => {
                    tracing::error!("a supervisor has ended; please report this");
                    None
                }
            };
            tasks.shutdown().await;
            let Some((config, next_transports)) = next else { break };
            context.shared.forget_tasks();
            context.config = Arc::new(config);
            transports = next_transports;
        }
        server.shutdown().await;
    }
}

/// The transports to ClusterD, if faults are reported.
fn configured_transports(
    config: &Config,
    api: &ApiClient,
    node: &str,
) -> Result<Option<Transports>, AddressError> {
    config.faults.enabled.then(|| transports(config, api.client(), node)).transpose()
}

impl Context {
    /// Waits for a configuration that can be used.
    async fn next_config(&self, configs: &mut watch::Receiver<Config>) -> (Config, Option<Transports>) {
        loop {
            if configs.changed().await.is_err() {
                // Without a file there are no reloads.
                return pending().await;
            }
            let config = configs.borrow_and_update().clone();
            match configured_transports(&config, &self.api, &self.shared.node_name) {
                Ok(transports) => return (config, transports),
                Err(error) => {
                    warn!(%error, "clusterd.address can't be used, the last good configuration remains in use");
                }
            }
        }
    }

    /// Starts the tasks with the current configuration.
    fn start_tasks(
        &self,
        event_writer: &Arc<Mutex<EventWriter>>,
        transports: Option<Transports>,
    ) -> JoinSet<Infallible> {
        let Self { config, timing, .. } = self;
        // A hanging check is reported much earlier; these limits are for tasks that can't report.
        let periodic = |interval: Duration| interval.saturating_mul(3) + Duration::from_mins(1);
        let network = timing.watch.saturating_mul(2) + timing.backoff.max + Duration::from_mins(1);
        let mut all = JoinSet::new();
        self.spawn(&mut all, "check", periodic(config.checks.interval), checks::run);
        if config.checks.clusterd.dial {
            self.spawn(&mut all, "clusterd", periodic(config.checks.clusterd.interval), checks::dial);
        }
        self.spawn(&mut all, "node", network, node::watch);
        self.spawn(&mut all, "pods", network, pods::watch);
        self.spawn(&mut all, "reconcile", periodic(Duration::from_mins(1)), node::reconcile);
        self.spawn(&mut all, "preload", periodic(config.preload.interval), preload::run);
        let event_writer = Arc::clone(event_writer);
        self.spawn(&mut all, "events", periodic(Duration::from_mins(6)), move |context, progress| {
            let event_writer = Arc::clone(&event_writer);
            async move { Ok(event_writer.lock().await.run(context.api.client(), &progress).await) }
        });
        if let Some(transports) = transports {
            faults::start(&mut all, self, transports);
        }
        all
    }

    /// Starts a supervised task that counts as stuck after `timeout` without progress.
    fn spawn<F, Fut>(&self, all: &mut JoinSet<Infallible>, name: &'static str, timeout: Duration, run: F)
    where
        F: Fn(Self, Progress) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Infallible, TaskError>> + Send + 'static,
    {
        let context = self.clone();
        let task = self.shared.tasks.add(name, timeout);
        all.spawn(supervise(task, move |progress| run(context.clone(), progress)));
    }
}

/// The id of the running kernel's boot. All containers share the kernel, so any `/proc` shows it.
fn boot_id(host_root: &Path) -> Option<String> {
    const PATH: &str = "proc/sys/kernel/random/boot_id";
    let read = |root: &Path| {
        let id = HostRoot::open(root).ok()?.read(PATH, 128).ok()?;
        let id = String::from_utf8(id).ok()?.trim().to_owned();
        (!id.is_empty()).then_some(id)
    };
    read(host_root).or_else(|| read(Path::new("/")))
}
