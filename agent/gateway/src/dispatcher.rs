//! Takes batches from the queue and sends them, one after the other, so that order is kept.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swansong_clusterd::{PublicFault, SendError, Transport};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::budget::Budget;
use crate::metrics::Metrics;
use crate::queue::Queue;

/// How long a fault waits for others to share its message.
const GATHER: Duration = Duration::from_millis(20);
/// The first pause after ClusterD didn't take a batch; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The relay's one way to ClusterD.
#[derive(Debug)]
pub struct Pump {
    queue: Mutex<Queue>,
    work: Notify,
    /// How long a request may wait.
    patience: Duration,
    /// Why the last batch wasn't taken, if it wasn't.
    trouble: Mutex<Option<SendError>>,
    metrics: Arc<Metrics>,
}

/// Why a request's faults weren't taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// Too many wait already.
    Full,
    /// ClusterD didn't take them in time, for this reason.
    Late(Option<SendError>),
    /// ClusterD never will.
    Failed(SendError),
}

impl Pump {
    /// Requests may wait for `patience`.
    pub fn new(patience: Duration, metrics: Arc<Metrics>) -> Self {
        Self { queue: Mutex::default(), work: Notify::new(), patience, trouble: Mutex::default(), metrics }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<SendError>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes when ClusterD has taken all of `faults`, or when that is given up. If it is dropped, what hasn't been sent
    /// isn't sent any more.
    pub async fn submit(&self, faults: Vec<PublicFault>) -> Result<(), NotTaken> {
        let answer = self.queue().push(faults, Instant::now()).map_err(|_| NotTaken::Full)?;
        self.work.notify_one();
        match timeout(self.patience, answer).await {
            Ok(Ok(outcome)) => outcome.map_err(NotTaken::Failed),
            // The pump never drops a request without an answer.
            Ok(Err(_)) | Err(_) => Err(NotTaken::Late(self.trouble().clone())),
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.queue().len()
    }

    /// Sends for ever.
    pub async fn run(self: Arc<Self>, sink: impl Transport, mut budget: Budget) -> Infallible {
        let mut pause = PAUSE;
        loop {
            self.gather().await;
            while let Err(wait) = budget.take(Instant::now()) {
                sleep(wait).await;
            }
            // Only now: meanwhile others have come, and some have gone.
            let batch = self.queue().batch();
            if batch.is_empty() {
                continue;
            }
            let sent = sink.send(&batch).await;
            self.metrics.batch(&sent, batch.len());
            let trouble = match sent {
                Ok(()) => {
                    self.queue().taken(batch.len());
                    None
                }
                Err(
                    error
                    @ (SendError::TooMany(_) | SendError::Unavailable(_) | SendError::RetryAfter { .. }),
                ) => Some(error),
                Err(error) => {
                    warn!(%error, faults = batch.len(), "ClusterD refuses a batch");
                    self.queue().failed(batch.len(), &error);
                    None
                }
            };
            let again = trouble.is_some();
            self.note(trouble);
            if again {
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            } else {
                pause = PAUSE;
            }
        }
    }

    /// Until a batch is full or its first fault has waited long enough.
    async fn gather(&self) {
        loop {
            let news = self.work.notified();
            let oldest = self.queue().oldest();
            match oldest {
                Some((since, full)) if full || since.elapsed() >= GATHER => return,
                // Others may fill the batch before that.
                Some((since, _)) => {
                    let _ = timeout_at(since + GATHER, news).await;
                }
                None => news.await,
            }
        }
    }

    /// Says once that ClusterD takes nothing, and once that it does again.
    fn note(&self, now: Option<SendError>) {
        let mut last = self.trouble();
        match (&*last, &now) {
            (None, Some(error)) => warn!(%error, "ClusterD takes no faults; they wait with their agents"),
            (Some(_), None) => info!("ClusterD takes faults again"),
            _ => {}
        }
        *last = now;
    }
}
