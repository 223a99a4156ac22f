//! Reads bodies within limits of memory and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use super::Limits;
use super::deadlines::ReviewDeadlines;
use super::metrics::{Metrics, Refusal};
use swansong_inject::reason::Reason;

/// Bodies up to this size need no reservation: the limit of connections bounds their sum.
const SMALL: u64 = 16 << 10;

/// How much of a large body is read before memory is reserved: enough for the uid, which a response needs.
const HEAD: usize = 4 << 10;

/// Limits of bodies.
#[derive(Debug)]
pub(super) struct BodyLimits {
    /// The largest body, in bytes.
    pub(super) max_size: u64,
    /// Memory for large bodies, in KiB.
    memory: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

/// Reserved memory, until it is dropped.
#[derive(Debug)]
struct Reservation {
    permit: OwnedSemaphorePermit,
    metrics: Arc<Metrics>,
}

impl Reservation {
    fn new(permit: OwnedSemaphorePermit, metrics: &Arc<Metrics>) -> Self {
        let reservation = Self { permit, metrics: Arc::clone(metrics) };
        metrics.large_bodies.inc_by(reservation.bytes());
        reservation
    }

    fn bytes(&self) -> i64 {
        i64::try_from(self.permit.num_permits() << 10).unwrap_or(i64::MAX)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.metrics.large_bodies.dec_by(self.bytes());
    }
}

/// A complete body with its memory.
#[derive(Debug)]
pub(super) struct BufferedBody {
    pub(super) bytes: Bytes,
    _reservation: Option<Reservation>,
}

/// Why a body wasn't read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// It isn't acceptable.
    Refused(Refusal),
    /// There was no memory for it in time, or it didn't arrive in time.
    Timeout {
        reason: Reason,
        /// The first bytes, as far as they arrived.
        head: Bytes,
        /// Whether the rest was read and discarded, so that the connection can be used again.
        is_drained: bool,
    },
}

impl BodyLimits {
    pub(super) fn new(limits: &Limits, metrics: Arc<Metrics>) -> Self {
        let kib = usize::try_from(limits.large_bodies.max(limits.body).div_ceil(1 << 10));
        let memory = Arc::new(Semaphore::new(kib.unwrap_or(Semaphore::MAX_PERMITS)));
        Self { max_size: limits.body, memory, metrics }
    }

    pub(super) async fn read(
        &self,
        body: Body,
        deadlines: &ReviewDeadlines,
    ) -> Result<BufferedBody, ReadError> {
        let size = body.size_hint();
        if size.lower() > self.max_size {
            return Err(ReadError::Refused(Refusal::TooLarge));
        }
        let expected = size.exact().unwrap_or(self.max_size);
        let mut reader = BodyReader {
            body,
            max_size: self.max_size,
            remaining: size.exact(),
            received: 0,
            deadline: deadlines.body,
        };
        let head = reader.head().await?;
        if reader.is_at_end() {
            // The usual case: everything came with one read, and nothing was copied.
            return Ok(BufferedBody { bytes: head, _reservation: None });
        }
        let reservation = if expected <= SMALL {
            None
        } else if let Some(reservation) = self.reserve(expected, deadlines.memory).await {
            Some(reservation)
        } else {
            let is_drained = reader.discard().await?;
            return Err(ReadError::Timeout { reason: Reason::Overloaded, head, is_drained });
        };
        // Pages that aren't written to cost nothing, so a client gains nothing by a promise.
        let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
        bytes.extend_from_slice(&head);
        loop {
            match reader.next().await {
                Ok(Some(part)) => bytes.extend_from_slice(&part),
                Ok(None) => return Ok(BufferedBody { bytes: bytes.into(), _reservation: reservation }),
                Err(stop) => return Err(stop.into_error(head)),
            }
        }
    }

    async fn reserve(&self, bytes: u64, deadline: Instant) -> Option<Reservation> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
        let acquire = Arc::clone(&self.memory).acquire_many_owned(kib);
        let permit = timeout_at(deadline, acquire).await.ok()?.ok()?;
        Some(Reservation::new(permit, &self.metrics))
    }
}

struct BodyReader {
    body: Body,
    max_size: u64,
    /// Bytes still to come, if the client declared the length.
    remaining: Option<u64>,
    received: u64,
    deadline: Instant,
}

/// Why reading stopped before the end.
enum Stop {
    Refused(Refusal),
    TooSlow,
}

impl Stop {
    fn into_error(self, head: Bytes) -> ReadError {
        match self {
            Self::Refused(refusal) => ReadError::Refused(refusal),
            Self::TooSlow => ReadError::Timeout { reason: Reason::BodyTimeout, head, is_drained: false },
        }
    }
}

impl BodyReader {
    fn is_at_end(&self) -> bool {
        self.remaining == Some(0) || self.body.is_end_stream()
    }

    /// The first bytes: at least [`HEAD`], unless the body is shorter.
    async fn head(&mut self) -> Result<Bytes, ReadError> {
        let mut head = match self.next().await {
            Ok(first) => first.unwrap_or_default(),
            Err(stop) => return Err(stop.into_error(Bytes::new())),
        };
        while head.len() < HEAD && !self.is_at_end() {
            match self.next().await {
                Ok(Some(part)) => head = [head, part].concat().into(),
                Ok(None) => break,
                Err(stop) => return Err(stop.into_error(head)),
            }
        }
        Ok(head)
    }

    /// Reads and discards the rest; returns whether it ended in time.
    async fn discard(&mut self) -> Result<bool, ReadError> {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(true),
                Err(Stop::TooSlow) => return Ok(false),
                Err(Stop::Refused(refusal)) => return Err(ReadError::Refused(refusal)),
            }
        }
    }

    /// What has arrived already when the deadline has passed. A process that was stopped sees its timers before what
    /// waits in the kernel, and that delay isn't the client's.
    async fn already_received(&mut self) -> Result<Option<Bytes>, Stop> {
        // Lets the runtime poll its sockets.
        yield_now().await;
        timeout(Duration::ZERO, next_data(&mut self.body)).await.map_err(|_| Stop::TooSlow)?
    }

    /// The next part; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Stop> {
        let part = match timeout_at(self.deadline, next_data(&mut self.body)).await {
            Ok(part) => part?,
            Err(_) => self.already_received().await?,
        };
        if let Some(part) = &part {
            let length = part.len() as u64;
            self.received += length;
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(length));
            if self.received > self.max_size {
                return Err(Stop::Refused(Refusal::TooLarge));
            }
        }
        Ok(part)
    }
}

/// The next data frame; trailers are skipped.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, Stop> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Stop::Refused(Refusal::Broken)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
