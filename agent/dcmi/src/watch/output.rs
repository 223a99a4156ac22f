//! Where lines go.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::line::{Counts, Line};
use crate::ffi::exit_at_once;

/// Whole lines, one after the other. Whoever doesn't read them lets the writer wait.
pub(super) struct Output {
    to: Mutex<BufWriter<Box<dyn Write + Send>>>,
    moves: AtomicU64,
    told: AtomicU64,
    counts: Mutex<Counts>,
}

impl Output {
    pub(super) fn new(to: impl Write + Send + 'static) -> Self {
        Self {
            to: Mutex::new(BufWriter::new(Box::new(to))),
            moves: AtomicU64::new(0),
            told: AtomicU64::new(0),
            counts: Mutex::default(),
        }
    }

    /// Writes a line now.
    pub(super) fn tell(&self, line: &Line) {
        self.write(|to| {
            put(to, line)?;
            to.flush()
        });
    }

    /// Writes a line by the next [`Output::flush`].
    pub(super) fn put(&self, line: &Line) {
        self.write(|to| put(to, line));
    }

    /// Writes what was put.
    pub(super) fn flush(&self) {
        self.write(Write::flush);
    }

    /// Without a reader there is nothing to watch for.
    fn write(&self, write: impl FnOnce(&mut BufWriter<Box<dyn Write + Send>>) -> io::Result<()>) {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if write(&mut to).is_err() {
            exit_at_once(1);
        }
    }

    /// The thread that calls the library moves.
    pub(super) fn moved(&self) {
        self.moves.fetch_add(1, Relaxed);
    }

    /// Counts something.
    pub(super) fn count(&self, what: impl FnOnce(&mut Counts)) {
        what(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells that the thread has moved, if it has since this was called last.
    pub(super) fn alive(&self) {
        let moves = self.moves.load(Relaxed);
        if self.told.swap(moves, Relaxed) != moves {
            let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            self.tell(&Line::Alive(counts));
        }
    }
}

fn put(to: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}
