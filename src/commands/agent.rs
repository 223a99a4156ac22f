//! `swansong agent`: is this node able to save a dying job?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use swansong_agent::check::{Surroundings, run};
use swansong_agent::config::Config;
use swansong_agent::report::{Ready, Report};
use swansong_agent::root::HostRoot;

use super::files::print;

/// Check whether this node is able to save a dying job
///
/// With --once the host is checked once and the report printed: driver, devices, libraries, ports, ClusterD, clock.
/// Ends with 0 when all is well, 2 when something is wrong, 3 when something couldn't be told, and 1 on errors of its
/// own.
#[derive(Debug, clap::Args)]
pub(crate) struct Agent {
    /// Check, print, end
    #[arg(long)]
    once: bool,
    /// What to print
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
    /// Checks and prints.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if !self.once {
            bail!(
                "the agent that keeps running isn't part of this version; add --once to check this node and print the report"
            );
        }
        let config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let root = HostRoot::open(&self.host_root).with_context(|| {
            format!(
                "--host-root {} can't be opened; mount the host's file system there",
                self.host_root.display()
            )
        })?;
        let node = self.node.clone().unwrap_or_else(|| host_name(&root));
        let report = Report::new(node, run(&root, &config, &Surroundings::look(&root, &config)));
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
}

/// The kubelet calls the node by the host's name in lower case, unless told otherwise.
fn host_name(root: &HostRoot) -> String {
    let file = root.read("/etc/hostname", 4096).unwrap_or_default();
    let name = String::from_utf8_lossy(&file).trim().to_lowercase();
    if name.is_empty() { "unknown".to_owned() } else { name }
}
