//! Reading a body in bounded memory and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use super::metrics::{Metrics, Refusal};
use super::patience::Patience;
use swansong_inject::reason::Reason;

/// Bodies up to this size are taken without asking: their sum is bounded by the number of connections.
const SMALL: u64 = 16 << 10;

/// So much of a large body is read before its room is asked for: it tells whom an answer is for.
const HEAD: usize = 4 << 10;

/// What bodies may cost.
#[derive(Debug)]
pub(super) struct Bodies {
    /// The largest body, in bytes.
    pub(super) most: u64,
    /// Kibibytes for large bodies, all together.
    pub(super) room: Arc<Semaphore>,
    pub(super) metrics: Arc<Metrics>,
}

/// A part of the room, until it is dropped.
#[derive(Debug)]
struct Share {
    permit: OwnedSemaphorePermit,
    metrics: Arc<Metrics>,
}

impl Share {
    fn new(permit: OwnedSemaphorePermit, metrics: &Arc<Metrics>) -> Self {
        let share = Self { permit, metrics: Arc::clone(metrics) };
        metrics.large_bodies.inc_by(share.bytes());
        share
    }

    fn bytes(&self) -> i64 {
        i64::try_from(self.permit.num_permits() << 10).unwrap_or(i64::MAX)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.metrics.large_bodies.dec_by(self.bytes());
    }
}

/// A body, and its share of the room until it is dropped.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    _share: Option<Share>,
}

/// Why there is no whole body.
#[derive(Debug)]
pub(super) enum Unread {
    /// It can't be taken at all.
    Refused(Refusal),
    /// It can't be taken in time.
    Untimely {
        /// Why.
        reason: Reason,
        /// What came first of it.
        head: Bytes,
        /// Whether it was read to its end, so that the connection can go on.
        ended: bool,
    },
}

impl Bodies {
    pub(super) async fn read(&self, body: Body, patience: &Patience) -> Result<Whole, Unread> {
        let size = body.size_hint();
        // What a client declares is known before the first byte; what it doesn't is taken for the most.
        if size.lower() > self.most {
            return Err(Unread::Refused(Refusal::TooLarge));
        }
        let expected = size.exact().unwrap_or(self.most);
        let mut arriving =
            Arriving { body, most: self.most, left: size.exact(), came: 0, until: patience.whole };
        let head = arriving.head().await?;
        if arriving.is_at_end() {
            // The usual case: one read brought it all, and nothing was copied.
            return Ok(Whole { bytes: head, _share: None });
        }
        let share = if expected <= SMALL {
            None
        } else if let Some(share) = self.share(expected, patience.room).await {
            Some(share)
        } else {
            let ended = arriving.discard().await?;
            return Err(Unread::Untimely { reason: Reason::Overloaded, head, ended });
        };
        // Pages that nothing is written to cost nothing, so a client that only promises gets nothing by it.
        let mut whole = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
        whole.extend_from_slice(&head);
        loop {
            match arriving.next().await {
                Ok(Some(part)) => whole.extend_from_slice(&part),
                Ok(None) => return Ok(Whole { bytes: whole.into(), _share: share }),
                Err(stop) => return Err(stop.with(head)),
            }
        }
    }

    async fn share(&self, bytes: u64, until: Instant) -> Option<Share> {
        let kibibytes = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
        let share = Arc::clone(&self.room).acquire_many_owned(kibibytes);
        let permit = timeout_at(until, share).await.ok()?.ok()?;
        Some(Share::new(permit, &self.metrics))
    }
}

/// A body on its way.
struct Arriving {
    body: Body,
    most: u64,
    /// What is still to come, where the client said how much it is.
    left: Option<u64>,
    came: u64,
    until: Instant,
}

/// Why no more of a body comes.
enum Stop {
    Refused(Refusal),
    TooSlow,
}

impl Stop {
    fn with(self, head: Bytes) -> Unread {
        match self {
            Self::Refused(refusal) => Unread::Refused(refusal),
            Self::TooSlow => Unread::Untimely { reason: Reason::BodyTimeout, head, ended: false },
        }
    }
}

impl Arriving {
    fn is_at_end(&self) -> bool {
        self.left == Some(0) || self.body.is_end_stream()
    }

    /// The first bytes: [`HEAD`] or more, unless the body is shorter.
    async fn head(&mut self) -> Result<Bytes, Unread> {
        let mut head = match self.next().await {
            Ok(first) => first.unwrap_or_default(),
            Err(stop) => return Err(stop.with(Bytes::new())),
        };
        while head.len() < HEAD && !self.is_at_end() {
            match self.next().await {
                Ok(Some(part)) => head = [head, part].concat().into(),
                Ok(None) => break,
                Err(stop) => return Err(stop.with(head)),
            }
        }
        Ok(head)
    }

    /// Reads the rest and forgets it; whether it came to its end.
    async fn discard(&mut self) -> Result<bool, Unread> {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(true),
                Err(Stop::TooSlow) => return Ok(false),
                Err(Stop::Refused(refusal)) => return Err(Unread::Refused(refusal)),
            }
        }
    }

    /// What has come already, though its time is over. A process that was halted finds its timers first and only then
    /// what waits for it in the kernel, and that isn't the client's slowness.
    async fn waiting(&mut self) -> Result<Option<Bytes>, Stop> {
        // Until the runtime has looked at its sockets.
        yield_now().await;
        timeout(Duration::ZERO, data(&mut self.body)).await.map_err(|_| Stop::TooSlow)?
    }

    /// The next part; none at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Stop> {
        let part = match timeout_at(self.until, data(&mut self.body)).await {
            Ok(part) => part?,
            Err(_) => self.waiting().await?,
        };
        if let Some(part) = &part {
            let length = part.len() as u64;
            self.came += length;
            self.left = self.left.map(|left| left.saturating_sub(length));
            if self.came > self.most {
                return Err(Stop::Refused(Refusal::TooLarge));
            }
        }
        Ok(part)
    }
}

/// The next part of the body; trailers are passed over.
async fn data(body: &mut Body) -> Result<Option<Bytes>, Stop> {
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
