//! `swansong dcmi`: the process in which the agent runs the driver's library.

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
/// Writes snapshots and events as lines of JSON to stdout and exits at the end of stdin. The format may change with each
/// version. The driver's folders have to be in LD_LIBRARY_PATH.
#[derive(Debug, clap::Args)]
pub(crate) struct Dcmi {
    /// Path of libdcmi.so
    #[arg(long, value_name = "FILE")]
    library: PathBuf,
    /// Interval of attempts to initialize the driver's API
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    init_interval: Duration,
    /// Timeout for the initialization
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    init_timeout: Duration,
    /// Interval of the three attempts to subscribe to events
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    subscribe_interval: Duration,
    /// Interval of polls of devices without events or with faults
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    poll: Duration,
    /// Interval of polls of all other devices
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    repoll: Duration,
    /// Interval of heartbeats
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    alive: Duration,
}

impl Dcmi {
    /// Watches until the agent exits.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { library, init_interval, init_timeout, subscribe_interval, poll, repoll, alive } = self;
        // The library may print to stdout, which is redirected to stderr.
        let lines = io::stdout().as_fd().try_clone_to_owned().context("stdout can't be duplicated")?;
        nix::unistd::dup2_stdout(io::stderr()).context("stdout can't be redirected to stderr")?;
        let timing = Timing { init_interval, init_timeout, subscribe_interval, poll, repoll, alive };
        watch::run(&library, timing, File::from(lines))
    }
}
