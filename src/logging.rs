//! Logs of the long-running commands: to stderr, as text or as one JSON object a line.

use std::io::{IsTerminal, stderr};
use std::panic;

use tracing::error;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Shape of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for reading.
    Text,
    /// One JSON object a line with `timestamp`, `level`, `message` and the fields.
    Json,
}

/// Options of logging
#[derive(Debug, clap::Args)]
pub(crate) struct Logging {
    /// Shape of the log lines
    #[arg(long, env = "SWANSONG_LOG_FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Lowest level to log, for all or by module: `info`, `warn,swansong_webhook=debug`
    #[arg(long, env = "SWANSONG_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    log_level: Targets,
}

impl Logging {
    /// Installs the subscriber; called once.
    pub(crate) fn start(&self) {
        let lines = fmt::layer().with_writer(stderr);
        let registry = tracing_subscriber::registry().with(self.log_level.clone());
        match self.log_format {
            LogFormat::Text => registry.with(lines.with_ansi(stderr().is_terminal())).init(),
            LogFormat::Json => registry
                .with(lines.json().flatten_event(true).with_current_span(false).with_span_list(false))
                .init(),
        }
        // The message of a panic can contain user data, so only its location is logged.
        panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            error!(place, "panicked; please report this");
        }));
    }
}
