//! What the device plugin publishes about this node.
//!
//! ClusterD reads the same ConfigMap, so that a fault in it isn't sent a second time. Without it ClusterD drops all faults of
//! this node.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use swansong_fault_model::device_plugin::{
    ConfigMapData, DevicePluginTracker, NAMESPACE, PluginState, config_map_name,
};
use swansong_runtime::supervisor::Progress;
use tokio::sync::watch;
use tokio::time::timeout_at;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::config_map::{Data, watch_config_map};

/// Watches the ConfigMap `mindx-dl-deviceinfo-<node>`.
pub struct DevicePluginWatch {
    name: String,
    client: Client,
    clock: Clock,
    tracker: watch::Sender<DevicePluginTracker>,
    state: watch::Sender<PluginState>,
}

impl fmt::Debug for DevicePluginWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePluginWatch").field("name", &self.name).finish_non_exhaustive()
    }
}

impl DevicePluginWatch {
    /// The watch of a node's ConfigMap, with the times of `clock`.
    pub fn new(node: &str, client: Client, clock: Clock) -> Self {
        Self {
            name: config_map_name(node),
            client,
            clock,
            tracker: watch::Sender::new(DevicePluginTracker::default()),
            state: watch::Sender::new(PluginState::Unknown),
        }
    }

    /// What is published, now and whenever it changes.
    pub fn tracker(&self) -> watch::Receiver<DevicePluginTracker> {
        self.tracker.subscribe()
    }

    /// Whether the device plugin publishes for this node. The age of what is stale isn't updated.
    pub fn state(&self) -> watch::Receiver<PluginState> {
        self.state.subscribe()
    }

    /// Watches the ConfigMap.
    pub async fn run(self: Arc<Self>, progress: Progress) -> Infallible {
        let map = (NAMESPACE, self.name.as_str());
        tokio::select! {
            never = watch_config_map(self.client.clone(), map, |data| self.update(data), &progress) => never,
            never = self.age() => never,
        }
    }

    fn update(&self, data: Option<&Data>) {
        let text = |key| data.and_then(|data| data.get(key)).map(String::as_str);
        let texts = ConfigMapData {
            device_info: text("DeviceInfoCfg"),
            manually_separated: text("ManuallySeparateNPU"),
        };
        self.tracker.send_modify(|tracker| match data {
            Some(_) => tracker.update(texts, self.clock.millis()),
            None => tracker.set_missing(),
        });
        self.publish_state();
    }

    fn publish_state(&self) {
        let now = self.tracker.borrow().state(self.clock.millis());
        self.state.send_if_modified(|known| {
            let same = match (&*known, &now) {
                (PluginState::Stale { .. }, PluginState::Stale { .. }) => true,
                (known, now) => known == now,
            };
            if same {
                return false;
            }
            match &now {
                PluginState::Invalid(problem) => {
                    warn!(config_map = self.name, %problem, "neither the agent nor ClusterD can use what the device plugin publishes");
                }
                PluginState::Missing => {
                    warn!(config_map = self.name, "the device plugin doesn't publish for this node, so that ClusterD drops all of its faults");
                }
                PluginState::Stale { age } => {
                    warn!(config_map = self.name, milliseconds = age, "the device plugin has published nothing for a while");
                }
                PluginState::Fresh => info!(config_map = self.name, "the device plugin publishes for this node"),
                PluginState::Unknown => {}
            }
            *known = now;
            true
        });
    }

    /// Notices when nothing is published any longer.
    async fn age(&self) -> Infallible {
        let mut tracker = self.tracker.subscribe();
        loop {
            let fresh_until = tracker.borrow_and_update().fresh_until();
            // The sender is part of self.
            let next = async { tracker.changed().await.is_ok() };
            match fresh_until.filter(|until| *until >= self.clock.millis()) {
                Some(until) => {
                    let _ =
                        timeout_at(self.clock.instant(Duration::from_millis(until.saturating_add(1))), next)
                            .await;
                }
                None => {
                    let _ = next.await;
                }
            }
            self.publish_state();
        }
    }
}

#[cfg(test)]
mod tests {
    use swansong_fault_model::device_plugin::{FRESH_FOR, check_code};

    use super::*;

    fn watch() -> Arc<DevicePluginWatch> {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = Client::try_from(nowhere).expect("a client");
        Arc::new(DevicePluginWatch::new("n", client, Clock::start()))
    }

    fn published(update_time: i64) -> Data {
        let list = std::collections::BTreeMap::new();
        let check_code = check_code(&list, update_time);
        let text = serde_json::json!({"DeviceInfo": {"DeviceList": list, "UpdateTime": update_time}, "CheckCode": check_code});
        Data::from([("DeviceInfoCfg".to_owned(), text.to_string())])
    }

    #[tokio::test(start_paused = true)]
    async fn stale_config_map_is_noticed() {
        let watch = watch();
        let mut state = watch.state();
        let started = watch.clock.millis();
        let aging = tokio::spawn({
            let watch = Arc::clone(&watch);
            async move { match watch.age().await {} }
        });
        assert_eq!(*state.borrow_and_update(), PluginState::Unknown);
        watch.update(None);
        assert_eq!(*state.borrow_and_update(), PluginState::Missing);
        watch.update(Some(&published(1)));
        assert_eq!(*state.borrow_and_update(), PluginState::Fresh);
        tokio::time::sleep(Duration::from_millis(FRESH_FOR - 10)).await;
        watch.update(Some(&published(2)));
        assert!(!state.has_changed().expect("open"), "still fresh");
        state.changed().await.expect("open");
        assert!(matches!(*state.borrow_and_update(), PluginState::Stale { age } if age > FRESH_FOR));
        assert!(watch.clock.millis() - started >= 2 * FRESH_FOR - 10);
        watch.update(Some(&published(3)));
        assert_eq!(*state.borrow_and_update(), PluginState::Fresh);
        watch.update(Some(&Data::new()));
        assert!(matches!(*state.borrow_and_update(), PluginState::Invalid(_)));
        aging.abort();
    }
}
