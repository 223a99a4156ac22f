//! `swansong agent`: whether this node can save a dying job.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use swansong_agent::checks::{self, CheckContext};
use swansong_agent::config::{Config, GatewaySettings};
use swansong_agent::finding::{Ready, Report, Status};
use swansong_agent::host::HostRoot;
use swansong_agent::node::Timing;
use swansong_agent::rehearsal::{Rehearsal, Step};
use swansong_agent::run::{Agent as Running, Parts};
use swansong_runtime::config::ConfigWatcher;
use tokio::sync::watch;
use tracing::info;

use super::files::{print, printable};
use super::signals::Signals;
use crate::logging::Logging;

/// Check whether this node can save a dying job, and keep its condition, label and Events up to date
///
/// With --once the host is checked once and the report is printed: driver, devices, libraries, ports, ClusterD, clock.
/// The exit status is 0 if all checks pass, 2 if one fails, 3 if none fails and one is unknown, and 1 if there is no
/// report.
// The last one of a repeated flag applies, which allows an overlay of the manifests to append its own.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Agent {
    /// Check once, print the report and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    rehearsal: RehearsalOptions,
    /// What to print with --once and --rehearse
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Configuration file of the agent, YAML, reloaded when it changes [default: all defaults]
    #[arg(long, env = "SWANSONG_AGENT_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// How often the configuration file is checked
    #[arg(long, env = "SWANSONG_RELOAD_INTERVAL", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    reload_interval: Duration,
    /// Path at which the host's file system is mounted
    #[arg(long, env = "SWANSONG_HOST_ROOT", value_name = "DIR", default_value = "/")]
    host_root: PathBuf,
    /// The node's name [default: the host's name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: Option<String>,
    /// Address for /healthz, /readyz, /metrics and /status; port 0 chooses a free one
    #[arg(long, env = "SWANSONG_HEALTH_LISTEN", value_name = "ADDR", default_value = "127.0.0.1:8081")]
    health_listen: SocketAddr,
    /// Report device faults to ClusterD, as `faults.enabled` in the configuration does
    #[arg(long, env = "SWANSONG_FAULTS")]
    faults: bool,
    /// Send faults through the gateway at this address, as `faults.gateway.address` in the configuration does
    #[arg(long, env = "SWANSONG_GATEWAY", value_name = "HOST:PORT")]
    gateway: Option<String>,
    #[command(flatten)]
    logging: Logging,
}

#[derive(Debug, clap::Args)]
struct RehearsalOptions {
    /// Send a harmless fault to ClusterD, watch it appear, withdraw it, print each step and exit
    ///
    /// The exit statuses are those of --once. It needs the API server, and the options of the node's agent.
    #[arg(long, conflicts_with = "once")]
    rehearse: bool,
    /// Rehearse although a job that asks for a dump runs on the node
    #[arg(long, requires = "rehearse")]
    force: bool,
}

/// Format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// One line per check.
    Text,
    /// One JSON object.
    Json,
}

impl Agent {
    /// Checks once and prints the report, or runs until it is stopped.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let overrides = Overrides::of(&self)?;
        let watcher = match &self.config {
            Some(path) => {
                let overrides = overrides.clone();
                let parse = move |text: &str| Ok(overrides.apply(Config::parse(text)?));
                Some(ConfigWatcher::start(path, parse)?)
            }
            None => None,
        };
        let config = match &watcher {
            Some(watcher) => watcher.subscribe(),
            None => watch::channel(overrides.apply(Config::default())).1,
        };
        let current = || config.borrow().clone();
        match (self.once, self.rehearsal.rehearse) {
            (true, _) => self.once(&current()),
            (false, true) => self.rehearse(current()),
            (false, false) => self.keep_running(config, watcher),
        }
    }

    fn rehearse(self, config: Config) -> anyhow::Result<ExitCode> {
        if !config.faults.enabled {
            anyhow::bail!(
                "the agent of this node sends no faults, so there is nothing to rehearse; set faults.enabled in its configuration, or add --faults if its agent has it"
            );
        }
        self.logging.start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let output = self.output;
        let report = runtime.block_on(async {
            let signals = Signals::listen().context("signals can't be handled")?;
            let rehearsal = Rehearsal {
                config,
                node: self.node_name()?,
                client: swansong_runtime::kube::client("swansong-agent").await.context(
                    "a rehearsal needs the API server, which shows what ClusterD has; run it in the Pod of an agent, or set KUBECONFIG",
                )?,
                host_root: self.host_root,
                force: self.rehearsal.force,
            };
            let on_step = |step: &Step| {
                if let Output::Text = output {
                    // The report's status says how it ends, also for a reader that left.
                    let _ = print(&format!("{step}\n"));
                }
            };
            Ok::<_, anyhow::Error>(rehearsal.run(signals.stop(), on_step).await?)
        })?;
        print(&match output {
            Output::Text => format!("{}  {}\n", printable(&report.node), report.status.as_str()),
            Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        })?;
        Ok(ExitCode::from(match report.status {
            Status::Pass => 0,
            Status::Fail => 2,
            Status::Unknown => 3,
        }))
    }

    fn once(&self, config: &Config) -> anyhow::Result<ExitCode> {
        let root = &HostRoot::open(&self.host_root).with_context(|| {
            let path = self.host_root.display();
            format!("--host-root {path} can't be opened; mount the host's file system there")
        })?;
        let node = self.node_name()?;
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

    fn keep_running(
        self,
        config: watch::Receiver<Config>,
        watcher: Option<ConfigWatcher<Config>>,
    ) -> anyhow::Result<ExitCode> {
        self.logging.start();
        let node = self.node_name()?;
        // One thread besides those that check the host saves memory.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the threads can't be started")?;
        let result = runtime.block_on(self.serve(node, config, watcher));
        // Without waiting for a check of a hanging file system.
        runtime.shutdown_background();
        result.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(
        self,
        node: String,
        config: watch::Receiver<Config>,
        watcher: Option<ConfigWatcher<Config>>,
    ) -> anyhow::Result<()> {
        let signals = Signals::listen().context("signals can't be handled")?;
        let kube = swansong_runtime::kube::config("swansong-agent").await.context(
            "the agent needs the API server to publish this node's state; run it in a cluster, set KUBECONFIG, or check once with --once",
        )?;
        let agent = Running::bind(Parts {
            config,
            host_root: self.host_root,
            node: node.clone(),
            health_listen: self.health_listen,
            kube,
            timing: Timing::default(),
        })
        .await?;
        info!(
            node,
            health_address = %agent.address(),
            version = env!("CARGO_PKG_VERSION"),
            "agent started"
        );
        if let Some(watcher) = watcher {
            tokio::spawn(watcher.run(self.reload_interval, agent.config_metrics()));
        }
        agent.run(signals.stop()).await;
        Ok(())
    }

    /// The configured name, else the host's name in lower case, as the kubelet does.
    fn node_name(&self) -> anyhow::Result<String> {
        let configured = self.node.clone().filter(|name| !name.is_empty());
        let detected = || HostRoot::open(&self.host_root).ok().and_then(|root| host_name(&root));
        configured.or_else(detected).context(
            "the host's name is neither in /etc/hostname nor in /proc/sys/kernel/hostname below --host-root; set the node's name by --node",
        )
    }
}

/// The settings that flags replace.
#[derive(Debug, Clone)]
struct Overrides {
    faults: bool,
    gateway: Option<GatewaySettings>,
}

impl Overrides {
    fn of(agent: &Agent) -> anyhow::Result<Self> {
        let gateway = agent.gateway.as_ref().map(|address| {
            GatewaySettings::at(address).with_context(|| format!("--gateway {address} isn't HOST:PORT"))
        });
        Ok(Self { faults: agent.faults, gateway: gateway.transpose()? })
    }

    fn apply(&self, mut config: Config) -> Config {
        config.faults.enabled |= self.faults;
        if let Some(mut gateway) = self.gateway.clone() {
            if let Some(configured) = config.faults.gateway.take() {
                (gateway.ca_file, gateway.token_file) = (configured.ca_file, configured.token_file);
            }
            config.faults.gateway = Some(gateway);
        }
        config
    }
}

/// The first line of `/etc/hostname` that isn't a comment (hostname(5)), else the kernel's name. Names that no Node can have
/// and that of an unconfigured host don't count.
fn host_name(root: &HostRoot) -> Option<String> {
    ["/etc/hostname", "/proc/sys/kernel/hostname"].iter().find_map(|path| {
        let content = root.read(path, 4096).ok()?;
        let content = String::from_utf8_lossy(&content);
        let mut lines = content.trim_start_matches('\u{feff}').lines().map(str::trim);
        let line = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
        let name = line.split(" #").next().unwrap_or(line).trim_end().trim_end_matches('.').to_lowercase();
        let is_unconfigured = name == "localhost" || name.starts_with("localhost.");
        (is_node_name(&name) && !is_unconfigured).then_some(name)
    })
}

/// Whether it is a DNS subdomain (RFC 1123), as names of Nodes are.
fn is_node_name(name: &str) -> bool {
    let is_letter_or_digit = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(is_letter_or_digit)
            && bytes.last().is_some_and(is_letter_or_digit)
            && bytes.iter().all(|byte| is_letter_or_digit(byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
