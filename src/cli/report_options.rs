//! The options of commands that print a report with warnings.

use std::process::ExitCode;

use serde::Serialize;

use super::files::print;

/// The format of a report, and what its warnings do to the exit status.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportOptions {
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Exit with status 2 if there is a warning
    #[arg(long)]
    fail_on_warning: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text for reading
    Text,
    /// One JSON object
    Json,
}

impl ReportOptions {
    /// Prints the report, with `text` as its form for reading, and returns the exit status.
    pub(crate) fn print<R: Serialize>(
        &self,
        report: &R,
        has_warnings: bool,
        text: impl FnOnce(&R) -> String,
    ) -> anyhow::Result<ExitCode> {
        print(&match self.output {
            Format::Text => text(report),
            Format::Json => serde_json::to_string_pretty(report)? + "\n",
        })?;
        Ok(if self.fail_on_warning && has_warnings { ExitCode::from(2) } else { ExitCode::SUCCESS })
    }
}
