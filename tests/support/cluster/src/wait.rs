//! Waiting for a condition by polling.

use std::fmt::Display;
use std::future::Future;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// The first pause between two polls; it doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(250);

/// Polls `check` until it returns `Ok`, with short pauses.
///
/// An `Err` says why the condition doesn't hold yet; the last one is part of the error when the
/// timeout expires. A check that hangs is abandoned then, too.
///
/// ```no_run
/// # async fn test(pods: kube::Api<k8s_openapi::api::core::v1::Pod>) -> Result<(), swansong_testcluster::Error> {
/// use std::time::Duration;
/// use swansong_testcluster::eventually;
///
/// let pod = eventually("the pod exists", Duration::from_secs(10), || pods.get("a")).await?;
/// # Ok(())
/// # }
/// ```
pub async fn eventually<T, E, F, Fut>(what: &str, timeout: Duration, mut check: F) -> Result<T, Error>
where
    E: Display,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let deadline = tokio::time::Instant::now() + timeout;
    let mut last = "it was never answered".to_owned();
    let mut pause = SHORTEST;
    loop {
        match tokio::time::timeout_at(deadline, check()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => last = reason.to_string(),
            Err(_) => return Err(over(what, timeout, last)),
        }
        let next = tokio::time::Instant::now() + pause;
        if next >= deadline {
            return Err(over(what, timeout, last));
        }
        tokio::time::sleep_until(next).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// [`eventually`] for the few places that have no runtime.
pub(crate) fn eventually_blocking<T, E: Display>(
    what: &str,
    timeout: Duration,
    mut check: impl FnMut() -> Result<T, E>,
) -> Result<T, Error> {
    let deadline = Instant::now() + timeout;
    let mut pause = SHORTEST;
    loop {
        match check() {
            Ok(value) => return Ok(value),
            Err(reason) if Instant::now() + pause >= deadline => {
                return Err(over(what, timeout, reason.to_string()));
            }
            Err(_) => thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST);
    }
}

fn over(what: &str, after: Duration, last: String) -> Error {
    Error::Timeout { what: what.to_owned(), after, last }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn polls_until_it_holds() {
        let checks = Cell::new(0);
        let seen = eventually("third check", Duration::from_secs(5), || async {
            checks.set(checks.get() + 1);
            if checks.get() == 3 { Ok(checks.get()) } else { Err("too early") }
        });
        assert_eq!(seen.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn reports_the_last_reason() {
        let never = eventually("never", Duration::from_millis(50), || async { Err::<(), _>("still no") });
        assert!(matches!(never.await, Err(Error::Timeout { last, .. }) if last == "still no"));
    }

    #[tokio::test]
    async fn abandons_a_check_that_hangs() {
        let hangs = eventually("hangs", Duration::from_millis(50), std::future::pending::<Result<(), &str>>);
        assert!(matches!(hangs.await, Err(Error::Timeout { .. })));
    }
}
