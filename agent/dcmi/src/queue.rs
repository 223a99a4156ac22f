//! Where the driver's thread leaves events: bounded, never waiting, one for the process as there is one subscription.

use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::layout::Event;

/// How many events wait at most, 368 bytes each. MindCluster takes 1000 a minute.
pub const CAPACITY: usize = 4096;

static SENDER: OnceLock<SyncSender<Received>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicBool = AtomicBool::new(false);

/// An event as the driver told it.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// A copy of the driver's record.
    pub event: Event,
    /// When it came by this host's clock, milliseconds since 1970. The driver's own time isn't used: recoveries bear
    /// that of the occurrence.
    pub at: u64,
}

/// The end of the queue that is read.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Received>,
    lost_before: u64,
}

impl Events {
    /// The events of this process; `None` if somebody has them already.
    pub fn take() -> Option<Self> {
        if TAKEN.swap(true, Relaxed) {
            return None;
        }
        let (sender, receiver) = sync_channel(CAPACITY);
        SENDER.set(sender).ok()?;
        Some(Self { receiver, lost_before: 0 })
    }

    /// The next event, if it comes in time.
    pub fn next(&self, patience: Duration) -> Option<Received> {
        self.receiver.recv_timeout(patience).ok()
    }

    /// The next event that is there already.
    pub fn waiting(&self) -> Option<Received> {
        self.receiver.try_recv().ok()
    }

    /// How many were lost since this was asked last, because too many waited or they couldn't be read. Whatever they
    /// told has to be asked for.
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

/// On the driver's thread: it may neither wait nor unwind.
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
