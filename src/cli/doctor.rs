//! `swansong doctor`: whether a dying checkpoint would be saved.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;
use swansong_doctor::bundle::{self, Bundle};
use swansong_doctor::checks::{self, Status};
use swansong_doctor::collect::{Scope, collect, evidence, material, now};
use swansong_doctor::fault_course::{self, Course, Outcome};
use swansong_doctor::rehearse::{self, rehearse};
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
    /// Show what happened to a job after its last fault, and why its checkpoint may be missing
    #[arg(long, value_name = "JOB", conflicts_with_all = ["job", "all", "node"])]
    last_fault: Option<String>,
    /// Write a support bundle about JOB, --node or all jobs to a new file, a tar.gz of at most 20 MiB. Values that resemble secrets are removed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["last_fault", "rehearse"])]
    bundle: Option<PathBuf>,
    /// With --node: send a harmless fault from the node to ClusterD and take it back, by the node's agent. With JOB: check every
    /// link up to the order to save, without giving one
    ///
    /// The result is kept in an annotation of the Node or job. With --node, nothing is sent while a job that asks
    /// for a dump runs there; with JOB, nothing is sent at all.
    #[arg(long, conflicts_with_all = ["all", "last_fault"])]
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

/// Format of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

impl ClusterOptions {
    /// A client, and the namespace of the kubeconfig's context. `what` needs it, by the error message.
    pub(crate) async fn connect(&self, what: &str) -> anyhow::Result<(kube::Client, String)> {
        let choice = ClusterChoice { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() };
        let config = swansong_runtime::kube::chosen_config("swansong-doctor", choice).await;
        let mut config = config.with_context(|| format!("{what} needs a cluster"))?;
        // A retry would hide why the API server doesn't reach a Pod.
        config.default_retry = false;
        let namespace = config.default_namespace.clone();
        let client = kube::Client::try_from(config).context("no client of the API server can be made")?;
        Ok((client, namespace))
    }
}

impl Doctor {
    /// Reads, checks and prints.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if let (true, Some(node)) = (self.rehearse, &self.node) {
            return runtime.block_on(self.rehearse(node));
        }
        if self.rehearse {
            anyhow::ensure!(self.job.is_some(), "a rehearsal needs JOB or --node NAME");
            return runtime.block_on(self.rehearse_job());
        }
        if let Some(job) = &self.last_fault {
            return runtime.block_on(self.last_fault(job));
        }
        if let Some(path) = &self.bundle {
            return runtime.block_on(self.bundle(path));
        }
        let report = runtime.block_on(self.report())?;
        print(&match self.output {
            Output::Text => report.text(self.verbose).to_string(),
            Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        })?;
        Ok(exit_code(&report))
    }

    async fn rehearse_job(&self) -> anyhow::Result<ExitCode> {
        let (client, default_namespace) = self.cluster.connect("a rehearsal").await?;
        let snapshot = collect(client.clone(), &self.scope(default_namespace), &progress).await;
        let report = Report::new(checks::run(&snapshot));
        let result = rehearse::of_job(&report, snapshot.taken_at);
        print(&match self.output {
            Output::Text => {
                let not_proven = rehearse::NOT_PROVEN.join("\n  ");
                format!(
                    "{}\n{}: {}\nnot proven:\n  {not_proven}\n",
                    report.text(self.verbose),
                    result.status,
                    printable(&result.message)
                )
            }
            Output::Json => {
                let all = json!({"report": report, "rehearsal": result, "notProven": rehearse::NOT_PROVEN});
                serde_json::to_string_pretty(&all)? + "\n"
            }
        })?;
        if let Some(job) = snapshot.jobs.iter().find_map(|job| job.object.read()) {
            rehearse::store(client, job, &result).await.context("the result isn't kept")?;
        }
        Ok(exit_code(&report))
    }

    async fn rehearse(&self, node: &str) -> anyhow::Result<ExitCode> {
        let (client, _) = self.cluster.connect("a rehearsal").await?;
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

    async fn last_fault(&self, job: &str) -> anyhow::Result<ExitCode> {
        let (client, default_namespace) = self.cluster.connect("doctor").await?;
        let namespace = self.namespace.clone().unwrap_or(default_namespace);
        let course = Course::new(evidence(client, &namespace, job, &progress).await);
        print(&match self.output {
            Output::Text => fault_course::Text(&course).to_string(),
            Output::Json => serde_json::to_string_pretty(&course)? + "\n",
        })?;
        Ok(ExitCode::from(match course.outcome {
            Outcome::Saved | Outcome::Recovered => 0,
            Outcome::NotSaved => 2,
            Outcome::Pending | Outcome::Unknown => 3,
        }))
    }

    async fn bundle(&self, path: &Path) -> anyhow::Result<ExitCode> {
        let (client, default_namespace) = self.cluster.connect("doctor").await?;
        let scope = match self.scope(default_namespace) {
            Scope::Cluster => Scope::All { namespace: self.namespace.clone() },
            scope => scope,
        };
        // The file is created first, so that nothing is read if it can't be written.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(path).with_context(|| format!("{} can't be created", path.display()))?;
        let material = material(client, &scope, &progress).await;
        let bundle = Bundle::new(&bundle::entries(&material), bundle::LIMIT, now() / 1000)?;
        file.write_all(&bundle.bytes).with_context(|| format!("{} can't be written", path.display()))?;
        let Bundle { bytes, files, left_out } = bundle;
        let left_out = match left_out.len() {
            0 => String::new(),
            count => format!("; {count} files had no room and are listed in LEFT-OUT.txt"),
        };
        print(&format!("{}: {files} files, {} KiB{left_out}\n", path.display(), bytes.len() / 1024))?;
        Ok(ExitCode::SUCCESS)
    }

    fn scope(&self, default_namespace: String) -> Scope {
        let namespace = self.namespace.clone();
        match (&self.job, &self.node) {
            (Some(job), _) => {
                Scope::Job { namespace: namespace.unwrap_or(default_namespace), name: job.clone() }
            }
            (None, Some(node)) => Scope::Node(node.clone()),
            (None, None) if self.all => Scope::All { namespace },
            (None, None) => Scope::Cluster,
        }
    }

    async fn report(&self) -> anyhow::Result<Report> {
        let (client, default_namespace) = self.cluster.connect("doctor").await?;
        let snapshot = collect(client, &self.scope(default_namespace), &progress).await;
        Ok(Report::new(checks::run(&snapshot)))
    }
}

fn exit_code(report: &Report) -> ExitCode {
    ExitCode::from(if report.count(Status::Fail) > 0 {
        2
    } else if report.count(Status::Unknown) > 0 {
        3
    } else {
        0
    })
}

/// Prints what is read next, if stderr is a terminal.
fn progress(what: &str) {
    if stderr().is_terminal() {
        eprintln!("reading {what} …");
    }
}
