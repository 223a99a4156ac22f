//! The pair that new TLS handshakes use.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;

use crate::pair::Pair;

/// Gives the current pair to each new handshake.
///
/// A handshake reads one pointer and never waits. Open connections keep the keys that they negotiated, so publishing a
/// new pair closes none of them. Handshakes before the first pair fail; the server waits for [`Resolver::ready`].
#[derive(Debug, Default)]
pub struct Resolver {
    current: ArcSwapOption<Pair>,
    published: Notify,
}

impl Resolver {
    /// Creates a resolver without a pair.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Returns the pair in use.
    pub fn current(&self) -> Option<Arc<Pair>> {
        self.current.load_full()
    }

    /// Uses this pair for all further handshakes.
    pub fn publish(&self, pair: Pair) {
        self.current.store(Some(Arc::new(pair)));
        self.published.notify_waiters();
    }

    /// Waits until there is a pair.
    pub async fn ready(&self) -> Arc<Pair> {
        loop {
            // Created before the check, so that a pair published in between is not missed.
            let published = self.published.notified();
            if let Some(pair) = self.current() {
                return pair;
            }
            published.await;
        }
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load().as_ref().map(|pair| Arc::clone(pair.certified_key()))
    }
}
