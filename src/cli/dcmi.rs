//! `swansong dcmi`: the process in which the agent keeps the driver's library.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use swansong_dcmi::watch::{self, Timing};

/// Watch the devices through the driver's library, for the agent
///
/// Writes what it sees to stdout, a line of JSON for each thing, and ends with stdin. Its form may change with each
/// version. The driver's folders have to be in LD_LIBRARY_PATH.
#[derive(Debug, clap::Args)]
pub(crate) struct Dcmi {
    /// libdcmi.so
    #[arg(long, value_name = "FILE")]
    library: PathBuf,
    /// Time between two tries to start the driver's API
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    init_interval: Duration,
    /// How long to try
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    init_patience: Duration,
    /// Time between two of the three tries to subscribe to events
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    subscribe_interval: Duration,
    /// How often devices without events, or with faults, are asked
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    poll: Duration,
    /// How often all others are
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    repoll: Duration,
    /// How often it says that it moves
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    alive: Duration,
}

impl Dcmi {
    /// Watches until the agent is gone.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { library, init_interval, init_patience, subscribe_interval, poll, repoll, alive } = self;
        // A pipe of our own: whatever the library prints goes to stderr.
        let lines = io::stdout().as_fd().try_clone_to_owned().context("stdout can't be kept")?;
        nix::unistd::dup2_stdout(io::stderr()).context("stdout can't be turned to stderr")?;
        let timing = Timing { init_interval, init_patience, subscribe_interval, poll, repoll, alive };
        watch::run(&library, timing, File::from(lines))
    }
}
