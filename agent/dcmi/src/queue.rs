//! The queue of events from the driver's thread: bounded and non-blocking. A process has one, as it has one subscription.

use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::layout::Event;

/// The capacity in events of 368 bytes. MindCluster accepts 1000 a minute.
pub const CAPACITY: usize = 4096;

static SENDER: OnceLock<SyncSender<Received>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A received event.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// A copy of the driver's record.
    pub event: Event,
    /// When it was received by this host's clock, in milliseconds since 1970. The driver's own time isn't used, as
    /// recoveries have that of the occurrence.
    pub at: u64,
}

/// The receiver of the queue.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Received>,
    lost_before: u64,
}

impl Events {
    /// The receiver of this process; `None` from the second call on.
    pub fn take() -> Option<Self> {
        if TAKEN.swap(true, Relaxed) {
            return None;
        }
        let (sender, receiver) = sync_channel(CAPACITY);
        SENDER.set(sender).ok()?;
        Some(Self { receiver, lost_before: 0 })
    }

    /// Waits for the next event until the timeout.
    pub fn next(&self, timeout: Duration) -> Option<Received> {
        self.receiver.recv_timeout(timeout).ok()
    }

    /// The next queued event.
    pub fn try_next(&self) -> Option<Received> {
        self.receiver.try_recv().ok()
    }

    /// The number of events lost since the last call, because the queue was full or they were invalid. Devices have to be
    /// polled then.
    pub fn lost(&mut self) -> u64 {
        let lost = LOST.load(Relaxed);
        let new = lost.wrapping_sub(self.lost_before);
        self.lost_before = lost;
        new
    }
}

pub(crate) fn lost_one() {
    LOST.fetch_add(1, Relaxed);
}

/// Runs on the driver's thread, so it must neither block nor unwind.
pub(crate) fn push(event: &Event) {
    let pushed = catch_unwind(|| {
        let received = Received { event: *event, at: now() };
        SENDER.get().is_some_and(|sender| sender.try_send(received).is_ok())
    });
    if !matches!(pushed, Ok(true)) {
        lost_one();
    }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
