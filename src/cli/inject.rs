//! `swansong inject`: adds to workload files what the dying checkpoint needs.

use std::path::PathBuf;
use std::process::ExitCode;

use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_webhook::config::Config;

use super::files::{Files, Format, print_changed, warn_of_unsupported_kind};

/// Add to workload files what the dying checkpoint needs
///
/// Injects Pods, AscendJobs, Volcano Jobs, Deployments, StatefulSets, Jobs, CronJobs and Lists of them if their annotation
/// recover-strategy has `dump`. Other documents pass through byte for byte; injected ones keep comments and formatting.
/// Warnings go to standard error. `swansong explain` shows each change and its reason.
#[derive(Debug, clap::Args)]
pub(crate) struct Inject {
    #[command(flatten)]
    files: Files,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
    #[command(flatten)]
    policy: PolicyFile,
}

/// The settings of the injection
#[derive(Debug, clap::Args)]
pub(crate) struct PolicyFile {
    /// Configuration file of the webhook, YAML [default: MindCluster's documented values]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl PolicyFile {
    /// Reads and validates the settings.
    pub(crate) fn load(&self) -> anyhow::Result<Policy> {
        match &self.config {
            Some(path) => Ok(Config::load(path)?.policy().clone()),
            None => Ok(Policy::default()),
        }
    }
}

impl Inject {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let policy = self.policy.load()?;
        let inputs = self.files.read()?;
        print_changed(&inputs, self.output, |object, messages| {
            let Ok(kind) = object.workload else {
                if let Some(warning) = warn_of_unsupported_kind(object, &policy) {
                    messages.add("warning", object, warning);
                }
                return Ok(Vec::new());
            };
            let outcome = inject(kind, &object.to_json(), &policy)?;
            outcome.warnings.iter().for_each(|warning| messages.add("warning", object, warning));
            outcome.notes.iter().for_each(|note| messages.add("note", object, note));
            Ok(outcome.operations)
        })
    }
}
