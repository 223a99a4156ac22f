//! Reading a body in bounded memory and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::metrics::Refusal;

/// Bodies up to this size are taken without asking: their sum is bounded by the number of connections.
const SMALL: u64 = 64 << 10;

/// What a body may cost.
#[derive(Debug, Clone)]
pub(super) struct BodyLimits {
    /// The largest body, in bytes.
    pub(super) most: u64,
    /// The longest that a body may take to arrive.
    pub(super) patience: Duration,
    /// The longest that a large body waits for others to be done.
    pub(super) queue: Duration,
    /// Kibibytes for large bodies, all together.
    pub(super) budget: Arc<Semaphore>,
}

/// A body, and its share of the budget until it is dropped.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl BodyLimits {
    pub(super) async fn read(&self, body: Body) -> Result<Read, Refusal> {
        let size = body.size_hint();
        // What a client declares is known before the first byte; what it doesn't is taken for the most.
        if size.lower() > self.most {
            return Err(Refusal::TooLarge);
        }
        let expected = size.exact().unwrap_or(self.most);
        let share = if expected <= SMALL { None } else { Some(self.share(expected).await?) };
        let bytes =
            timeout(self.patience, self.collect(body, expected)).await.unwrap_or(Err(Refusal::TooSlow))?;
        Ok(Read { bytes, _share: share })
    }

    async fn share(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Refusal> {
        let kibibytes = u32::try_from(bytes.div_ceil(1 << 10)).map_err(|_| Refusal::TooLarge)?;
        let share = Arc::clone(&self.budget).acquire_many_owned(kibibytes);
        match timeout(self.queue, share).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(Refusal::Overloaded),
        }
    }

    async fn collect(&self, mut body: Body, expected: u64) -> Result<Bytes, Refusal> {
        let Some(first) = data(&mut body).await? else { return Ok(Bytes::new()) };
        if body.is_end_stream() || first.len() as u64 == expected {
            // The usual case: one read brought it all, and nothing is copied.
            return if first.len() as u64 > self.most { Err(Refusal::TooLarge) } else { Ok(first) };
        }
        let mut whole = Vec::with_capacity(usize::try_from(expected.min(SMALL)).unwrap_or_default());
        let mut next = Some(first);
        while let Some(part) = next {
            if (whole.len() + part.len()) as u64 > self.most {
                return Err(Refusal::TooLarge);
            }
            whole.extend_from_slice(&part);
            next = data(&mut body).await?;
        }
        Ok(whole.into())
    }
}

/// The next part of the body; trailers are passed over.
async fn data(body: &mut Body) -> Result<Option<Bytes>, Refusal> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Refusal::Broken),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
