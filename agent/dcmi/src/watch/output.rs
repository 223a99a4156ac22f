//! Writes lines to the agent.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::line::{Counts, Line};
use crate::ffi::exit_at_once;

/// Writes whole lines; blocks while the agent doesn't read them.
pub(super) struct Output {
    to: Mutex<BufWriter<Box<dyn Write + Send>>>,
    progress: AtomicU64,
    reported_progress: AtomicU64,
    counts: Mutex<Counts>,
}

impl Output {
    pub(super) fn new(to: impl Write + Send + 'static) -> Self {
        Self {
            to: Mutex::new(BufWriter::new(Box::new(to))),
            progress: AtomicU64::new(0),
            reported_progress: AtomicU64::new(0),
            counts: Mutex::default(),
        }
    }

    /// Writes and flushes a line.
    pub(super) fn write_line(&self, line: &Line) {
        self.write(|to| {
            serialize(to, line)?;
            to.flush()
        });
    }

    /// Buffers a line until the next [`Output::flush`].
    pub(super) fn buffer_line(&self, line: &Line) {
        self.write(|to| serialize(to, line));
    }

    /// Writes the buffered lines.
    pub(super) fn flush(&self) {
        self.write(Write::flush);
    }

    /// Ends the process if the agent is gone.
    fn write(&self, write: impl FnOnce(&mut BufWriter<Box<dyn Write + Send>>) -> io::Result<()>) {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if write(&mut to).is_err() {
            exit_at_once(1);
        }
    }

    /// Records that the library thread makes progress.
    pub(super) fn record_progress(&self) {
        self.progress.fetch_add(1, Relaxed);
    }

    /// Updates the counters.
    pub(super) fn count(&self, update: impl FnOnce(&mut Counts)) {
        update(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Writes a heartbeat if the library thread has made progress since the last call.
    pub(super) fn write_heartbeat(&self) {
        let progress = self.progress.load(Relaxed);
        if self.reported_progress.swap(progress, Relaxed) != progress {
            let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            self.write_line(&Line::Alive(counts));
        }
    }
}

fn serialize(to: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}
