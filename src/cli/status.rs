//! `swansong status`: a table of jobs and one of nodes.

use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;

use swansong_doctor::status::{Observed, Table, Text, Watches, table};

use super::doctor::{ClusterOptions, Output};
use super::files::print;

/// Moves to the first column of the first line, and clears the rest.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Show which jobs are ready for a dump, what happened to them last, and which nodes are ready
///
/// It reads what the API server has, and asks neither agents nor webhook: `swansong doctor` sees more.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Namespace of the jobs [default: all]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Print the tables again whenever they change
    #[arg(short, long)]
    watch: bool,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Print also the rows of long tables that are ready and had no fault
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
}

impl Status {
    /// Reads and prints, once or until it is ended.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.follow())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn follow(&self) -> anyhow::Result<()> {
        let (client, _) = self.cluster.connect("status").await?;
        let mut watches = Watches::new(&client, self.namespace.as_deref());
        let mut last: Option<Table> = None;
        loop {
            let observed = watches.next().await;
            let table = table(&observed);
            if last.as_ref() != Some(&table) {
                print(&self.written(&table, &observed, last.is_none())?)?;
            }
            if !self.watch {
                return Ok(());
            }
            last = Some(table);
        }
    }

    fn written(&self, table: &Table, observed: &Observed, is_first: bool) -> anyhow::Result<String> {
        Ok(match self.output {
            // One object a line, so that a program can follow them.
            Output::Json if self.watch => serde_json::to_string(table)? + "\n",
            Output::Json => serde_json::to_string_pretty(table)? + "\n",
            Output::Text => {
                let text = Text { table, now: observed.now, is_verbose: self.verbose };
                let before = match () {
                    () if self.watch && stdout().is_terminal() => CLEAR,
                    () if is_first => "",
                    () => "\n",
                };
                format!("{before}{text}")
            }
        })
    }
}
