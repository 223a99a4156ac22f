use std::convert::Infallible;
use std::future::pending;
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Calls `read` every `interval`, for the first time after one, and passes its results to `handle`.
///
/// Polling and comparing contents needs no watcher, and works the same whether the kubelet swaps its `..data` link or a
/// file is written in place. `read` runs on a blocking thread, so a hung mount delays only this loop. A panic of `read`
/// is propagated.
pub async fn poll<T: Send + 'static>(
    interval: Duration,
    read: impl Fn() -> T + Clone + Send + 'static,
    mut handle: impl FnMut(T),
) -> Infallible {
    // tokio panics on a period of zero.
    let interval = interval.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match spawn_blocking(read.clone()).await {
            Ok(result) => handle(result),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn reads_again_and_again() {
        let reads = Arc::new(AtomicU32::new(0));
        let read = move || reads.fetch_add(1, Ordering::Relaxed);
        let (sender, mut results) = tokio::sync::mpsc::unbounded_channel();
        let task =
            tokio::spawn(poll(Duration::ZERO, read, move |result| sender.send(result).unwrap_or_default()));
        for expected in 0..3 {
            assert_eq!(results.recv().await, Some(expected));
        }
        task.abort();
    }

    #[tokio::test]
    async fn propagates_a_panic() {
        let read = || std::panic::panic_any("out");
        let end = tokio::spawn(poll(Duration::ZERO, read, |()| {})).await;
        assert!(end.is_err_and(|end| end.is_panic()));
    }
}
