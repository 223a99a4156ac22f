//! A list, then a watch from there, again and again.

use std::convert::Infallible;
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::server::{ApiError, ApiServer};
use swansong_runtime::backoff::{Backoff, Limits};
use swansong_runtime::supervisor::Progress;

/// An object of more is none that etcd would hold.
const LONGEST_LINE: usize = 8 << 20;

/// How patiently is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How long a watch lives; each lives up to half as long again, so that they don't end together.
    pub watch: Duration,
    /// How long a watch may be silent. The API server sends a bookmark every minute.
    pub silence: Duration,
    /// The delay between attempts.
    pub backoff: Limits,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            watch: Duration::from_mins(6),
            silence: Duration::from_secs(150),
            backoff: Limits { first: Duration::from_millis(500), max: Duration::from_secs(30) },
        }
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is there, new or changed.
    Applied,
    /// It was deleted.
    Deleted,
}

/// Whoever wants to know about the objects of a selection.
pub(crate) trait Follow: Send {
    /// These are all of them.
    fn replace(&mut self, objects: &[&RawValue]);
    /// One has changed.
    fn change(&mut self, change: Change, object: &RawValue);
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Follows the objects at `path` that the field selector chooses.
pub(crate) async fn follow(
    api: &ApiServer,
    path: &str,
    selector: (&str, &str),
    timing: &Timing,
    follower: &mut impl Follow,
    progress: &Progress,
) -> Infallible {
    // Names of nodes have no character that means something in a URL.
    let selection = format!("{path}?fieldSelector={}%3D{}", selector.0, selector.1);
    let mut backoff = Backoff::new(timing.backoff);
    loop {
        progress.alive();
        match round(api, &selection, timing, follower, progress).await {
            Ok(()) => {
                backoff.reset();
                // A server that ends watches at once isn't asked in a tight loop.
                sleep(timing.backoff.first).await;
            }
            Err(error) => {
                let wait = backoff.next_delay(error.retry_after());
                warn!(%error, wait = ?wait, "the API server can't be asked; trying again");
                progress.failed(&error);
                sleep(wait).await;
            }
        }
    }
}

async fn round(
    api: &ApiServer,
    selection: &str,
    timing: &Timing,
    follower: &mut impl Follow,
    progress: &Progress,
) -> Result<(), ApiError> {
    // Version 0: whatever the server has at hand, without asking etcd.
    let path = format!("{selection}&resourceVersion=0");
    let answer = api.call(Method::GET, &path, "", Vec::new()).await?;
    let list: List<'_> = serde_json::from_slice(&answer)
        .map_err(|error| ApiError::NotUnderstood { path: path.clone(), problem: error.to_string() })?;
    follower.replace(list.items.as_deref().unwrap_or_default());
    progress.succeeded();
    let version = list.metadata.resource_version;
    drop(answer);
    let life = timing.watch + timing.watch.mul_f64(fastrand::f64() / 2.0);
    let path = format!(
        "{selection}&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={version}",
        life.as_secs().max(1)
    );
    match api.open(&path).await {
        Ok(body) => watch(body, timing.silence, follower, progress).await,
        // Too old already: the next list is newer.
        Err(error) if error.code() == Some(StatusCode::GONE) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Reads a watch until it ends, breaks or falls silent; the next list tells what was missed.
async fn watch(mut body: Body, silence: Duration, follower: &mut impl Follow, progress: &Progress) {
    let mut buffer = Vec::new();
    loop {
        let frame = match timeout(silence, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return debug!(%error, "a watch broke"),
            Ok(None) => return debug!("a watch ended"),
            Err(_) => return warn!(after = ?silence, "a watch fell silent; asking anew"),
        };
        progress.alive();
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        while let Some(end) = buffer.iter().position(|&c| c == b'\n') {
            let rest = buffer.split_off(end + 1);
            let line = std::mem::replace(&mut buffer, rest);
            match serde_json::from_slice::<Event<'_>>(&line) {
                Ok(Event { kind: "ADDED" | "MODIFIED", object }) => follower.change(Change::Applied, object),
                Ok(Event { kind: "DELETED", object }) => follower.change(Change::Deleted, object),
                Ok(Event { kind: "BOOKMARK", .. }) => {}
                Ok(Event { kind, .. }) => return debug!(kind, "a watch ended with an error"),
                Err(error) => return warn!(%error, "a watch can't be understood; asking anew"),
            }
            progress.succeeded();
        }
        if buffer.len() > LONGEST_LINE {
            return warn!("an object is too large to be watched; asking anew");
        }
    }
}
