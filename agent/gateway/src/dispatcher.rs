//! Sends batches to ClusterD one after the other, which keeps their order.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use swansong_clusterd::{PublicFault, SendError, Transport};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::problem::{Problem, Reason};
use crate::queue::RequestQueue;
use crate::rate_limit::RateLimiter;

/// How long a fault waits for others to share its message.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// The delays after ClusterD didn't accept a batch.
const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_factor(2.0)
    .with_min_delay(Duration::from_millis(500))
    .with_max_delay(Duration::from_secs(8))
    .without_max_times();

/// Queues the agents' requests and sends their faults.
#[derive(Debug)]
pub struct Dispatcher {
    queue: Mutex<RequestQueue>,
    queued: Notify,
    request_timeout: Duration,
    /// Why ClusterD didn't accept the last batch.
    last_error: Mutex<Option<SendError>>,
    metrics: Arc<Metrics>,
}

impl Dispatcher {
    /// Creates a dispatcher in which a request waits at most `request_timeout`.
    pub fn new(request_timeout: Duration, metrics: Arc<Metrics>) -> Self {
        Self {
            queue: Mutex::default(),
            queued: Notify::new(),
            request_timeout,
            last_error: Mutex::default(),
            metrics,
        }
    }

    fn queue(&self) -> MutexGuard<'_, RequestQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when ClusterD has accepted all of `faults`, or with an error. Faults that aren't sent yet when the future
    /// is dropped are never sent.
    pub async fn submit(&self, faults: Vec<PublicFault>) -> Result<(), Problem> {
        let busy = |message| Problem::new(Reason::Busy, message);
        let result = self.queue().push(faults, Instant::now());
        let result = result.map_err(|_| busy("too many requests are queued"))?;
        self.queued.notify_one();
        if let Ok(Ok(result)) = timeout(self.request_timeout, result).await {
            return result.map_err(Problem::from);
        }
        let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(last_error.map_or_else(|| busy("there are more faults than ClusterD accepts"), Problem::from))
    }

    /// The number of queued requests.
    pub fn queue_len(&self) -> usize {
        self.queue().len()
    }

    /// Sends batches until the future is dropped.
    pub async fn run(self: Arc<Self>, transport: impl Transport, mut limiter: RateLimiter) -> Infallible {
        let mut delays = BACKOFF.build();
        loop {
            self.wait_for_batch().await;
            limiter.acquire().await;
            // Requests may have arrived or been given up meanwhile.
            let batch = self.queue().next_batch();
            if batch.is_empty() {
                continue;
            }
            let result = transport.send(&batch).await;
            self.metrics.record_batch(&result, batch.len());
            match result {
                Ok(()) => self.queue().complete(batch.len()),
                Err(
                    error
                    @ (SendError::TooMany(_) | SendError::Unavailable(_) | SendError::RetryAfter { .. }),
                ) => {
                    self.set_last_error(Some(error));
                    sleep(delays.next().unwrap_or_default()).await;
                    continue;
                }
                Err(error) => {
                    warn!(%error, faults = batch.len(), "ClusterD refuses a batch");
                    self.queue().reject(batch.len(), &error);
                }
            }
            self.set_last_error(None);
            delays = BACKOFF.build();
        }
    }

    /// Waits until a batch is full or its first fault has waited long enough.
    async fn wait_for_batch(&self) {
        loop {
            let queued = self.queued.notified();
            let oldest = self.queue().oldest();
            match oldest {
                Some((since, full)) if full || since.elapsed() >= BATCH_DELAY => return,
                Some((since, _)) => {
                    let _ = timeout_at(since + BATCH_DELAY, queued).await;
                }
                None => queued.await,
            }
        }
    }

    /// Logs when ClusterD stops and when it resumes accepting faults.
    fn set_last_error(&self, error: Option<SendError>) {
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*last, &error) {
            (None, Some(error)) => warn!(%error, "ClusterD accepts no faults; requests wait or are retried"),
            (Some(_), None) => info!("ClusterD accepts faults again"),
            _ => {}
        }
        *last = error;
    }
}
