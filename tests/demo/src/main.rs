//! `make demo`: a job that says `recover-strategy: "dump"` is ready to dump, and dumps when a device fails.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use swansong_demo::screen::Screen;
use swansong_demo::tour::{Length, Tour};
use tokio::signal::unix::{SignalKind, signal};

/// See a training job become ready for its dying checkpoint and save it, on a real Kubernetes on this machine.
#[derive(Parser)]
#[command(name = "demo")]
struct Arguments {
    /// quick: the injection only; full: also a fault of a device.
    #[arg(long, env = "DEMO", value_enum, default_value_t = Length::Full)]
    length: Length,
    /// Keep the cluster until Ctrl-C even without a terminal.
    #[arg(long)]
    keep: bool,
    /// The program `swansong` to put into the image [default: the one beside this program].
    #[arg(long, value_name = "FILE")]
    swansong: Option<PathBuf>,
    /// The definition of AscendJob [default: MindCluster's where it is available, else tests/support/fixtures/crds.yaml].
    #[arg(long, value_name = "FILE")]
    definitions: Option<PathBuf>,
}

impl Arguments {
    fn swansong(&self) -> Result<PathBuf> {
        let program = match &self.swansong {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("find the running program")?.with_file_name("swansong"),
        };
        anyhow::ensure!(
            program.is_file(),
            "there is no {}; `make demo` builds it first, or name one with --swansong",
            program.display()
        );
        Ok(program)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was as it should be.
fn run(arguments: &Arguments) -> Result<bool> {
    let tour = Tour {
        swansong: arguments.swansong()?,
        definitions: arguments.definitions.clone().unwrap_or_else(swansong_demo::definitions::file),
        keep: arguments.keep || (std::io::stdin().is_terminal() && std::io::stdout().is_terminal()),
        length: arguments.length,
        time_factor: 1.0,
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(async { tour.run(&Screen::standard(), interrupted()?).await });
    // A cluster that is still starting isn't waited for: it ends when it sees that this process is gone.
    runtime.shutdown_background();
    result
}

/// Becomes ready at the first signal that asks for the end.
fn interrupted() -> Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}
