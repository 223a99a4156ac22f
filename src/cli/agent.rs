//! `swansong agent`: is this node able to save a dying job?

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use swansong_agent::checks::{self, CheckContext};
use swansong_agent::config::{Config, GatewaySettings};
use swansong_agent::finding::{Ready, Report};
use swansong_agent::host::HostRoot;
use swansong_agent::node::{ApiServer, Timing};
use swansong_agent::run::{Agent as Running, Parts};
use tracing::info;

use super::files::print;
use super::signals::Signals;
use crate::logging::Logging;

/// How long an answer of the API server may take.
const API_PATIENCE: Duration = Duration::from_secs(10);

/// Check whether this node is able to save a dying job, and keep its condition, label and Events true
///
/// With --once the host is checked once and the report printed: driver, devices, libraries, ports, ClusterD, clock.
/// Ends with 0 when all is well, 2 when something is wrong, 3 when something couldn't be told, and 1 on errors of its
/// own.
// The last of a flag wins, so that an overlay of the manifests can append its own.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Agent {
    /// Check, print, end
    #[arg(long)]
    once: bool,
    /// What to print with --once
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Configuration file of the agent, YAML [default: what every node needs]
    #[arg(long, env = "SWANSONG_AGENT_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the host's file system is mounted
    #[arg(long, env = "SWANSONG_HOST_ROOT", value_name = "DIR", default_value = "/")]
    host_root: PathBuf,
    /// The node's name [default: the host's name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: Option<String>,
    /// Address for /healthz, /readyz, /metrics and /status; port 0 chooses a free one
    #[arg(long, env = "SWANSONG_HEALTH_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8081")]
    health_listen: SocketAddr,
    /// Tell ClusterD of device faults, as `faults.relay.enabled` in the configuration does
    #[arg(long, env = "SWANSONG_RELAY_FAULTS")]
    relay_faults: bool,
    /// Send faults through the gateway at this address, as `faults.relay.gateway.address` in the configuration does
    #[arg(long, env = "SWANSONG_GATEWAY", value_name = "HOST:PORT")]
    gateway: Option<String>,
    #[command(flatten)]
    logging: Logging,
}

/// How the report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people, a line a check.
    Text,
    /// For programs.
    Json,
}

impl Agent {
    /// Checks and prints, or goes on until it is told to stop.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        config.faults.relay.enabled |= self.relay_faults;
        if let Some(address) = &self.gateway {
            let mut gateway = GatewaySettings::at(address)
                .with_context(|| format!("--gateway {address} isn't HOST:PORT"))?;
            if let Some(configured) = config.faults.relay.gateway.take() {
                (gateway.ca_file, gateway.token_file) = (configured.ca_file, configured.token_file);
            }
            config.faults.relay.gateway = Some(gateway);
        }
        let root = HostRoot::open(&self.host_root).with_context(|| {
            format!(
                "--host-root {} can't be opened; mount the host's file system there",
                self.host_root.display()
            )
        })?;
        let node = self.node.clone().unwrap_or_else(|| host_name(&root));
        if self.once { self.once(&root, node, &config) } else { self.keep_running(node, config) }
    }

    fn once(&self, root: &HostRoot, node: String, config: &Config) -> anyhow::Result<ExitCode> {
        let report =
            Report::new(node, checks::run(root, &config.checks, &CheckContext::gather(root, &config.checks)));
        print(&match self.output {
            Output::Text => report.to_string(),
            Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        })?;
        Ok(ExitCode::from(match report.ready {
            Ready::True => 0,
            Ready::False => 2,
            Ready::Unknown => 3,
        }))
    }

    fn keep_running(self, node: String, config: Config) -> anyhow::Result<ExitCode> {
        self.logging.start();
        // One thread beside those that look at the host: there is next to nothing to do, and little memory to do it in.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the threads can't be started")?;
        let result = runtime.block_on(self.serve(node, config));
        // Not waiting for a look at a file system that hangs.
        runtime.shutdown_background();
        result.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(self, node: String, config: Config) -> anyhow::Result<()> {
        let signals = Signals::listen().context("signals can't be listened for")?;
        let config_of_client = swansong_runtime::kube::config("swansong-agent").await.context(
            "the agent keeps this node's state in the API server, which can't be found; run it in a cluster, set KUBECONFIG, or check once with --once",
        )?;
        let api = ApiServer::new(config_of_client, API_PATIENCE)
            .context("no client of the API server can be made")?;
        let agent = Running::bind(Parts {
            config,
            host_root: self.host_root,
            node: node.clone(),
            health_listen: self.health_listen,
            api,
            timing: Timing::default(),
        })
        .await?;
        info!(
            node,
            health_address = %agent.address(),
            version = env!("CARGO_PKG_VERSION"),
            "watching over the node"
        );
        agent.run(signals.stop()).await;
        Ok(())
    }
}

/// The kubelet calls the node by the host's name in lower case, unless told otherwise.
fn host_name(root: &HostRoot) -> String {
    let file = root.read("/etc/hostname", 4096).unwrap_or_default();
    let name = String::from_utf8_lossy(&file).trim().to_lowercase();
    if name.is_empty() { "unknown".to_owned() } else { name }
}
