//! Work beside the server that never ends by itself.

use std::convert::Infallible;
use std::future::pending;

use anyhow::anyhow;
use tokio::task::JoinSet;

/// Tasks without which the server may look well but isn't: a certificate that is renewed no more, a configuration that
/// is read no more.
#[derive(Default)]
pub(super) struct Background(JoinSet<Infallible>);

impl Background {
    pub(super) fn start(&mut self, task: impl Future<Output = Infallible> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Comes when a task has ended all the same, which only a panic can bring about.
    pub(super) async fn broken(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(Err(end)) => anyhow!("a task that never ends has ended ({end}); please report this"),
            None => pending().await,
        }
    }
}
