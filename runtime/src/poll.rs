//! Looking at files again and again.

use std::convert::Infallible;
use std::future::pending;
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Calls `read` every `every`, first when that has passed, and hands what it brings to `take`, for ever.
///
/// Files that are read again and compared by content need no watcher to be armed in time, and it is all one whether
/// the kubelet swaps its `..data` link, a file is written in place, or it is deleted and made anew. `read` runs off the
/// runtime's threads: a hung mount delays only this loop. If it panics, so does this.
pub async fn poll<T: Send + 'static>(
    every: Duration,
    read: impl Fn() -> T + Clone + Send + 'static,
    mut take: impl FnMut(T),
) -> Infallible {
    // A period of zero is a panic in tokio.
    let every = every.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match spawn_blocking(read.clone()).await {
            Ok(brought) => take(brought),
            Err(end) => match end.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is about to end, and this with it.
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
    async fn looks_again_and_again() {
        let looks = Arc::new(AtomicU32::new(0));
        let read = move || looks.fetch_add(1, Ordering::Relaxed);
        let (sender, mut brought) = tokio::sync::mpsc::unbounded_channel();
        let task =
            tokio::spawn(poll(Duration::ZERO, read, move |look| sender.send(look).unwrap_or_default()));
        for expected in 0..3 {
            assert_eq!(brought.recv().await, Some(expected));
        }
        task.abort();
    }

    #[tokio::test]
    async fn a_panic_is_not_swallowed() {
        let read = || std::panic::panic_any("out");
        let end = tokio::spawn(poll(Duration::ZERO, read, |()| {})).await;
        assert!(end.is_err_and(|end| end.is_panic()));
    }
}
