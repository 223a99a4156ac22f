//! When to stop.

use std::io;
use std::process;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

/// SIGTERM and SIGINT, listened for from the start, so that none is lost while the server comes up.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns at the first signal. A further SIGTERM changes nothing, since supervisors may send it twice. A further SIGINT
    /// ends the process at once.
    pub(crate) async fn stop(mut self) {
        let name = self.next().await;
        info!(signal = name, "stopping");
        tokio::spawn(async move {
            loop {
                match self.next().await {
                    "SIGINT" => {
                        warn!(signal = "SIGINT", "stopping at once");
                        process::exit(1);
                    }
                    name => info!(signal = name, "stopping already"),
                }
            }
        });
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
