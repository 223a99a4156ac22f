//! When to stop.

use std::io;
use std::process;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

/// SIGTERM and SIGINT, listened for from the start, so that none is lost while the server comes up.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Comes with the first signal. A second one ends the process at once, for whoever is in a hurry.
    pub(super) async fn stop(mut self) {
        let name = self.next().await;
        info!(signal = name, "stopping");
        tokio::spawn(async move {
            let name = self.next().await;
            warn!(signal = name, "stopping at once");
            process::exit(1);
        });
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
