//! `swansong lint-script`: says whether start scripts can save a dying checkpoint, and what is wrong with them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use swansong_trainer::{Report, Setting, Source, read_script};

use super::files::{is_shell_script, printable, read_text};
use super::report_options::ReportOptions;
use super::trainer_text::{StorageRate, lines};

/// Say whether start scripts can save a dying checkpoint, and what is wrong with them
///
/// The job is taken to have the annotation recover-strategy with `dump`. Scripts may call each other and read the other files,
/// such as MindFormers' YAML; `swansong explain -f job.yaml -f start.sh` knows the job's NPUs and variables too.
/// The JSON object is {"scripts": [{"file", "verdict", "trainings", "findings"}]}.
///
/// Exit status: 0; 1 if a file can't be read; with --fail-on-warning 2 if there is a warning.
#[derive(Debug, clap::Args)]
pub(crate) struct LintScript {
    /// Shell scripts, and files that they read; `-` is a script on standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    storage_rate: StorageRate,
    #[command(flatten)]
    report: ReportOptions,
}

#[derive(Debug, Serialize)]
struct Scripts {
    scripts: Vec<Script>,
}

#[derive(Debug, Serialize)]
struct Script {
    file: String,
    #[serde(flatten)]
    report: Report,
}

impl LintScript {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let files: Vec<(String, String)> =
            self.files.iter().map(|file| read_text(file)).collect::<Result<_, _>>()?;
        let sources: Vec<Source<'_>> = files.iter().map(|(path, text)| Source { path, text }).collect();
        let storage_rate = self.storage_rate.get();
        let setting = Setting { sources: &sources, storage_rate, ..Setting::default() };
        let is_only = files.len() == 1;
        let scripts = sources.iter().filter(|source| is_only || is_shell_script(source.path, source.text));
        let scripts: Vec<Script> = scripts
            .map(|source| {
                let report = read_script(source.path, source.text, None, &setting);
                Script { file: source.path.to_owned(), report }
            })
            .collect();
        let has_warnings = scripts.iter().any(|script| script.report.has_warnings());
        self.report.print(&Scripts { scripts }, has_warnings, text)
    }
}

fn text(Scripts { scripts }: &Scripts) -> String {
    let mut text = String::new();
    for Script { file, report } in scripts {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{}: {}", printable(file), report.verdict);
        for line in lines(report, file) {
            let _ = writeln!(text, "  {}", printable(&line));
        }
    }
    text
}
