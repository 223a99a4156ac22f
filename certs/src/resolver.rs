use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::pair::Pair;

/// Gives the current pair to each new handshake.
///
/// Open connections keep the keys that they negotiated, so publishing a new pair closes none of them. Handshakes before
/// the first pair fail; the server waits for [`Resolver::ready`].
#[derive(Debug, Default)]
pub struct Resolver(watch::Sender<Option<Arc<Pair>>>);

impl Resolver {
    /// Creates a resolver without a pair.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the pair in use.
    pub fn current(&self) -> Option<Arc<Pair>> {
        self.0.borrow().clone()
    }

    /// Uses this pair for all further handshakes.
    pub fn publish(&self, pair: Pair) {
        self.0.send_replace(Some(Arc::new(pair)));
    }

    /// Waits until there is a pair.
    pub async fn ready(&self) {
        // The sender, which this is, outlives the receiver.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().as_ref().map(|pair| Arc::clone(&pair.certified))
    }
}
