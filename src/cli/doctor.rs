//! `swansong doctor`: whether a dying checkpoint would be saved.

use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use swansong_doctor::checks::{self, Status};
use swansong_doctor::collect::{Scope, collect, now};
use swansong_doctor::rehearse::rehearse;
use swansong_doctor::report::Report;
use swansong_runtime::kube::ClusterChoice;

use super::files::{print, printable};

/// Check in a cluster whether a dying checkpoint would be saved: every link of the chain
///
/// It only reads, except with --rehearse. The exit status is 0 if no check fails and all are known, 2 if one fails, 3 if none fails and one is unknown,
/// and 1 if there is no report.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// The job to check, with its Pods and their nodes; without it only the installation and the cluster are checked
    #[arg(value_name = "JOB", conflicts_with_all = ["all", "node"])]
    job: Option<String>,
    /// Check all jobs that ask for a dump, of the namespace -n or of all, and all nodes with an agent
    #[arg(long, conflicts_with = "node")]
    all: bool,
    /// Check a node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Send a harmless fault from the node to ClusterD and take it back, by the node's agent, and print the result
    ///
    /// It writes an annotation on the Node. Nothing is sent while a job that asks for a dump runs there.
    #[arg(long, requires = "node")]
    rehearse: bool,
    /// Namespace of the job [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Print the checks that pass one by one
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Which cluster is read.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterOptions {
    /// File with the cluster's address and credentials [default: as kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Sections with a line for each check that doesn't pass.
    Text,
    /// One JSON object.
    Json,
}

impl ClusterOptions {
    /// The configuration of the client.
    pub(crate) async fn config(&self) -> anyhow::Result<kube::Config> {
        let choice = ClusterChoice { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() };
        Ok(swansong_runtime::kube::chosen_config("swansong-doctor", choice).await?)
    }
}

impl Doctor {
    /// Reads, checks and prints.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if let (true, Some(node)) = (self.rehearse, &self.node) {
            return runtime.block_on(self.rehearse(node));
        }
        let report = runtime.block_on(self.report())?;
        print(&match self.output {
            Output::Text => report.text(self.verbose).to_string(),
            Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        })?;
        Ok(ExitCode::from(if report.count(Status::Fail) > 0 {
            2
        } else if report.count(Status::Unknown) > 0 {
            3
        } else {
            0
        }))
    }

    async fn rehearse(&self, node: &str) -> anyhow::Result<ExitCode> {
        let config = self.cluster.config().await.context("a rehearsal needs a cluster")?;
        let client = kube::Client::try_from(config).context("no client of the API server can be made")?;
        eprintln!("waiting for the agent of node {node} …");
        let result = rehearse(client, node, now()).await?;
        print(&match self.output {
            Output::Text => format!("{}: {}\n", result.status, printable(&result.message)),
            Output::Json => serde_json::to_string_pretty(&result)? + "\n",
        })?;
        Ok(ExitCode::from(match result.status.as_str() {
            "pass" => 0,
            "fail" => 2,
            _ => 3,
        }))
    }

    async fn report(&self) -> anyhow::Result<Report> {
        let config = self.cluster.config().await.context("doctor needs a cluster")?;
        let namespace = self.namespace.clone();
        let scope = match (&self.job, &self.node) {
            (Some(job), _) => Scope::Job {
                namespace: namespace.unwrap_or_else(|| config.default_namespace.clone()),
                name: job.clone(),
            },
            (None, Some(node)) => Scope::Node(node.clone()),
            (None, None) if self.all => Scope::All { namespace },
            (None, None) => Scope::Cluster,
        };
        let client = kube::Client::try_from(config).context("no client of the API server can be made")?;
        let is_terminal = stderr().is_terminal();
        let on_progress = |what: &str| {
            if is_terminal {
                eprintln!("reading {what} …");
            }
        };
        let snapshot = collect(client, &scope, &on_progress).await;
        Ok(Report::new(checks::run(&snapshot)))
    }
}
