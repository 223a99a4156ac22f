use std::convert::Infallible;
use std::future::pending;

use anyhow::anyhow;
use tokio::task::JoinSet;

/// Tasks beside the server, such as the renewal of its certificate. If one panics, the process stops.
#[derive(Default)]
pub(super) struct Background(JoinSet<Infallible>);

impl Background {
    pub(super) fn start(&mut self, task: impl Future<Output = Infallible> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Completes when a task has panicked.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            Some(Err(panic)) => anyhow!("a background task has failed ({panic}); please report this"),
            None => pending().await,
        }
    }
}
