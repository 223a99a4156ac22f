//! Watches of the own Node and its Pods.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;
use swansong_runtime::backoff::Backoff;
use swansong_runtime::kube::causes;
use swansong_runtime::supervisor::Progress;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::Timing;
use super::client::ApiClient;
use super::object::PodObject;

/// A watch without an error for this long makes progress, even if no object changes.
const PROGRESS_INTERVAL: Duration = Duration::from_mins(1);

/// A change of the watched objects.
#[derive(Debug)]
pub enum Change<K> {
    /// The complete list.
    Replaced(Vec<K>),
    /// An object is new or changed.
    Applied(K),
    /// An object was deleted.
    Deleted(K),
}

pub async fn watch_node(
    api: &ApiClient,
    name: &str,
    timing: Timing,
    progress: &Progress,
    apply: impl FnMut(Change<Node>),
) -> Infallible {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watch(api, Api::all(api.client().clone()), config, timing, progress, apply).await
}

/// Watches the Pods on the Node `name`.
pub async fn watch_pods(
    api: &ApiClient,
    name: &str,
    timing: Timing,
    progress: &Progress,
    apply: impl FnMut(Change<PodObject>),
) -> Infallible {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={name}"));
    watch(api, Api::all(api.client().clone()), config, timing, progress, apply).await
}

async fn watch<K>(
    client: &ApiClient,
    api: Api<K>,
    config: watcher::Config,
    timing: Timing,
    progress: &Progress,
    mut apply: impl FnMut(Change<K>),
) -> Infallible
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let seconds = u32::try_from(timing.watch.as_secs()).unwrap_or(u32::MAX).max(1);
    // The API server answers from its cache, without a read from etcd.
    let config = config.any_semantic().timeout(seconds);
    let mut backoff = Backoff::new(timing.backoff);
    loop {
        progress.alive();
        let events = watcher(api.clone(), config.clone());
        pin_mut!(events);
        let mut list = Vec::new();
        loop {
            let event = match timeout(PROGRESS_INTERVAL, events.next()).await {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(_) => {
                    progress.succeeded();
                    continue;
                }
            };
            match event {
                Ok(Event::Init) => list.clear(),
                Ok(Event::InitApply(object)) => list.push(object),
                Ok(Event::InitDone) => apply(Change::Replaced(std::mem::take(&mut list))),
                Ok(Event::Apply(object)) => apply(Change::Applied(object)),
                Ok(Event::Delete(object)) => apply(Change::Deleted(object)),
                Err(error) => {
                    let (error, delay) = (causes(&error), backoff.next_delay(client.retry_after()));
                    warn!(error, ?delay, "the API server can't be watched, retrying");
                    progress.failed(&error);
                    sleep(delay).await;
                    continue;
                }
            }
            backoff.reset();
            progress.succeeded();
        }
    }
}
