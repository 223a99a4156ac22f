//! Adds to the configuration whether the cluster has native sidecars.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use anyhow::anyhow;
use swansong_inject::policy::NativeSidecars;
use swansong_runtime::kube::error_message;
use swansong_webhook::config::Config;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use super::USER_AGENT;

/// Kubernetes 1.29 enables them by default.
const FIRST_MINOR: u32 = 29;
/// Timeout of a request to the API server.
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// Until the next request after a failed one, and after one to a cluster that is too old, which may be updated.
const RETRY: Duration = Duration::from_secs(15);

/// The configuration of the file, completed.
pub(super) fn complete(
    file: watch::Receiver<Config>,
) -> (watch::Receiver<Config>, impl Future<Output = Infallible>) {
    let config = file.borrow().clone().with_native_sidecars(NativeSidecars::Unknown);
    let (completed, receiver) = watch::channel(config);
    (receiver, run(file, completed))
}

async fn run(mut file: watch::Receiver<Config>, completed: watch::Sender<Config>) -> Infallible {
    let mut last = None;
    loop {
        let sidecars = poll().await;
        if last.as_ref() != Some(&sidecars) {
            log(&sidecars);
        }
        let found = sidecars.as_ref().copied().unwrap_or(NativeSidecars::Unknown);
        last = Some(sidecars);
        let next_poll =
            async { if found == NativeSidecars::Supported { pending().await } else { sleep(RETRY).await } };
        tokio::pin!(next_poll);
        loop {
            let config = file.borrow_and_update().clone().with_native_sidecars(found);
            completed.send_if_modified(|present| {
                let is_modified = *present != config;
                *present = config;
                is_modified
            });
            tokio::select! {
                () = &mut next_poll => break,
                changed = file.changed() => if changed.is_err() {
                    // Without a file there are no changes.
                    next_poll.as_mut().await;
                    break;
                },
            }
        }
    }
}

fn log(sidecars: &Result<NativeSidecars, String>) {
    match sidecars {
        Ok(NativeSidecars::Supported) => {}
        Ok(_) => info!("Kubernetes is older than 1.{FIRST_MINOR}: the TaskD Manager can't run as a sidecar"),
        Err(error) => {
            // Warnings on the objects that ask for the sidecar say the same.
            debug!(
                error,
                "the version of Kubernetes isn't known: the TaskD Manager doesn't run as a sidecar"
            );
        }
    }
}

async fn poll() -> Result<NativeSidecars, String> {
    let version = async {
        let client = swansong_runtime::kube::client(USER_AGENT).await?;
        client.apiserver_version().await.map_err(|error| anyhow!(error_message(&error)))
    };
    let version = timeout(API_TIMEOUT, version).await;
    let version = version.map_err(|_| format!("no answer from the API server in {API_TIMEOUT:?}"))?;
    let version = version.map_err(|error| format!("{error:#}"))?;
    let sidecars = of_version(&version.major, &version.minor);
    sidecars.ok_or_else(|| format!("unexpected version {}.{}", version.major, version.minor))
}

/// By the numbers of a version, of which some clouds write the minor one as `29+`.
fn of_version(major: &str, minor: &str) -> Option<NativeSidecars> {
    let minor = minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    let version: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(if version >= (1, FIRST_MINOR) { NativeSidecars::Supported } else { NativeSidecars::Unsupported })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_sidecars_by_version() {
        for (major, minor, expected) in [
            ("1", "28", Some(NativeSidecars::Unsupported)),
            ("1", "29", Some(NativeSidecars::Supported)),
            ("1", "29+", Some(NativeSidecars::Supported)),
            ("1", "37", Some(NativeSidecars::Supported)),
            ("2", "0", Some(NativeSidecars::Supported)),
            ("", "", None),
        ] {
            assert_eq!(of_version(major, minor), expected, "{major}.{minor}");
        }
    }
}
