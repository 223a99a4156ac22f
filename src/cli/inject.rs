//! `swansong inject`: workload files in, the same files ready for the dying checkpoint out.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_webhook::config::Config;

use super::files::{Files, Format, patch_all, print, render};

/// Add to workload files what the dying checkpoint needs
///
/// Pods, AscendJobs, Volcano Jobs, Deployments, StatefulSets, Jobs, CronJobs and Lists of them are made ready when
/// their annotation recover-strategy holds `dump`. All else passes through byte for byte, and in what is changed
/// comments and formatting stay. Warnings go to standard error. `swansong explain` says what is done and why.
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
    /// Configuration file of the webhook, YAML [default: what MindCluster documents]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl PolicyFile {
    /// Reads and checks the settings.
    pub(crate) fn load(&self) -> anyhow::Result<Policy> {
        match &self.config {
            Some(path) => Ok(Config::load(path)?.policy().clone()),
            None => Ok(Policy::default()),
        }
    }
}

impl Inject {
    /// Reads, injects, prints.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let policy = self.policy.load()?;
        let inputs = self.files.read()?;
        let mut warnings = String::new();
        let patched = patch_all(&inputs, |object, kind| {
            let outcome = inject(kind, &object.to_json(), &policy)?;
            for warning in outcome.warnings {
                let (kind, place) = (&object.kind, object.place());
                // Writing into a String has no way to fail.
                let _ =
                    writeln!(warnings, "warning: {kind} {place}: {}: {}", warning.reason, warning.message);
            }
            Ok(outcome.operations)
        })?;
        let output = render(&inputs, &patched, self.output)?;
        eprint!("{warnings}");
        print(&output)?;
        Ok(ExitCode::SUCCESS)
    }
}
