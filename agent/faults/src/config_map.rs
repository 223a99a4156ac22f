//! One ConfigMap, watched.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher;
use swansong_runtime::backoff::{API_SERVER, Backoff};
use swansong_runtime::kube::causes;
use swansong_runtime::supervisor::Progress;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// The data of a ConfigMap.
pub(crate) type Data = BTreeMap<String, String>;

/// The watch reports progress at least this often, although nothing changes.
const ALIVE: Duration = Duration::from_secs(30);

/// Calls `update` with the data of a ConfigMap whenever it may have changed, `None` if there is none. While the API server
/// can't be asked it isn't called.
///
/// The field selector leaves one object, so that the right to watch it can be given for that name alone.
pub(crate) async fn watch_config_map(
    client: Client,
    (namespace, name): (&str, &str),
    mut update: impl FnMut(Option<&Data>) + Send,
    progress: &Progress,
) -> Infallible {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(maps, config));
    let mut backoff = Backoff::new(API_SERVER);
    let mut is_present = false;
    loop {
        match timeout(ALIVE, events.next()).await {
            Err(_) => progress.alive(),
            Ok(Some(Ok(event))) => {
                backoff.reset();
                progress.succeeded();
                match event {
                    watcher::Event::Init => is_present = false,
                    watcher::Event::InitApply(map) | watcher::Event::Apply(map) => {
                        is_present = true;
                        update(Some(&map.data.unwrap_or_default()));
                    }
                    watcher::Event::InitDone if is_present => {}
                    watcher::Event::InitDone | watcher::Event::Delete(_) => update(None),
                }
            }
            Ok(Some(Err(error))) => {
                let delay = backoff.next_delay(None);
                let error = causes(&error);
                warn!(namespace, name, error, ?delay, "the ConfigMap can't be watched, retrying");
                progress.failed(&error);
                sleep(delay).await;
            }
            // The watcher never ends.
            Ok(None) => std::future::pending().await,
        }
    }
}
