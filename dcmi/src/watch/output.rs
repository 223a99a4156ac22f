//! Where lines go.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::line::{Counts, Line};
use crate::ffi::exit_at_once;

/// Whole lines, one after the other. Whoever doesn't read them lets the writer wait.
pub(super) struct Output {
    to: Mutex<Box<dyn Write + Send>>,
    moves: AtomicU64,
    told: AtomicU64,
    counts: Mutex<Counts>,
}

impl Output {
    pub(super) fn new(to: impl Write + Send + 'static) -> Self {
        Self {
            to: Mutex::new(Box::new(to)),
            moves: AtomicU64::new(0),
            told: AtomicU64::new(0),
            counts: Mutex::default(),
        }
    }

    /// Without a reader there is nothing to watch for.
    pub(super) fn tell(&self, line: &Line) {
        let written = serde_json::to_vec(line).map_err(Into::into).and_then(|mut text| {
            text.push(b'\n');
            let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
            to.write_all(&text)?;
            to.flush()
        });
        if written.is_err() {
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
