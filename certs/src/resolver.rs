//! The pair in use, swapped without touching connections that are open.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;

use crate::pair::Pair;

/// Hands the last good pair to each new handshake.
///
/// A handshake reads one pointer; it waits for nobody. A connection keeps the keys it agreed on, so a swap ends none.
/// Before the first pair a handshake fails, which is why the server asks [`Resolver::ready`] before it says it is.
#[derive(Debug, Default)]
pub struct Resolver {
    current: ArcSwapOption<Pair>,
    published: Notify,
}

impl Resolver {
    /// A resolver without a pair yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The pair in use.
    pub fn current(&self) -> Option<Arc<Pair>> {
        self.current.load_full()
    }

    /// Uses this pair for every handshake from now on.
    pub fn publish(&self, pair: Pair) {
        self.current.store(Some(Arc::new(pair)));
        self.published.notify_waiters();
    }

    /// Waits until there is a pair.
    pub async fn ready(&self) -> Arc<Pair> {
        loop {
            // Made before looking, so that a pair published in between is not missed.
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
