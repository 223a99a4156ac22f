//! What the device plugin publishes of this node, followed.
//!
//! It is no source of faults: ClusterD reads the same ConfigMap. It is there so that nobody tells ClusterD a second time
//! what that says, and so that it is noticed when nobody writes it.

use std::convert::Infallible;
use std::sync::Arc;

use swansong_fault_model::device_plugin::{
    ConfigMapData, DevicePluginTracker, NAMESPACE, PluginState, config_map_name,
};
use tokio::sync::watch;
use tokio::time::timeout_at;
use tracing::{info, warn};

use super::{Out, Progress, Source, TaskError};
use crate::api::{ApiServer, Texts, Timing, follow_config_map};
use crate::fault::Clock;

/// Follows the ConfigMap `mindx-dl-deviceinfo-<node>`.
#[derive(Debug)]
pub struct DevicePluginWatch {
    name: String,
    api: Arc<ApiServer>,
    timing: Arc<Timing>,
    clock: Clock,
    view: watch::Sender<DevicePluginTracker>,
    publishes: watch::Sender<PluginState>,
}

impl DevicePluginWatch {
    /// For a node, with the times of `clock`.
    pub fn new(node: &str, api: Arc<ApiServer>, timing: Arc<Timing>, clock: Clock) -> Self {
        Self {
            name: config_map_name(node),
            api,
            timing,
            clock,
            view: watch::Sender::new(DevicePluginTracker::default()),
            publishes: watch::Sender::new(PluginState::Unknown),
        }
    }

    /// What is published, now and whenever it changes; to be asked with times of the same clock.
    pub fn view(&self) -> watch::Receiver<DevicePluginTracker> {
        self.view.subscribe()
    }

    /// Whether somebody publishes for this node. It changes when that does; the age of what is stale isn't kept up.
    pub fn publishes(&self) -> watch::Receiver<PluginState> {
        self.publishes.subscribe()
    }

    fn look(&self, texts: Option<&Texts>) {
        let text = |key| texts.and_then(|texts| texts.get(key)?.as_deref());
        let data = ConfigMapData {
            device_info: text("DeviceInfoCfg"),
            manually_separated: text("ManuallySeparateNPU"),
        };
        self.view.send_modify(|view| match texts {
            Some(_) => view.update(data, self.clock.now()),
            None => view.set_missing(),
        });
        self.tell();
    }

    /// Says whether somebody publishes, if that isn't what was said before.
    fn tell(&self) {
        let now = self.view.borrow().state(self.clock.now());
        self.publishes.send_if_modified(|known| {
            let same = match (&*known, &now) {
                (PluginState::Stale { .. }, PluginState::Stale { .. }) => true,
                (known, now) => known == now,
            };
            if same {
                return false;
            }
            match &now {
                PluginState::Invalid(problem) => {
                    warn!(config_map = self.name, %problem, "what the device plugin publishes can't be used, by ClusterD neither");
                }
                PluginState::Missing => {
                    warn!(config_map = self.name, "nobody publishes for this node, so ClusterD drops all of its faults");
                }
                PluginState::Stale { age } => {
                    warn!(config_map = self.name, milliseconds = age, "nothing has been published for this node");
                }
                PluginState::Fresh => info!(config_map = self.name, "the device plugin publishes for this node"),
                PluginState::Unknown => {}
            }
            *known = now;
            true
        });
    }

    /// Notices that nothing is written any more.
    async fn age(&self) -> Infallible {
        let mut view = self.view.subscribe();
        loop {
            let fresh_until = view.borrow_and_update().fresh_until();
            // Its sender is part of this, so it isn't closed.
            let next = async { view.changed().await.is_ok() };
            match fresh_until.filter(|until| *until >= self.clock.now()) {
                Some(until) => {
                    let _ = timeout_at(self.clock.instant(until.saturating_add(1)), next).await;
                }
                None => {
                    let _ = next.await;
                }
            }
            self.tell();
        }
    }
}

impl Source for DevicePluginWatch {
    const NAME: &'static str = "device-plugin";

    /// It tells nothing by `out`.
    async fn run(self: Arc<Self>, _out: Out, progress: Progress) -> Result<Infallible, TaskError> {
        let map = (NAMESPACE, self.name.as_str());
        tokio::select! {
            never = follow_config_map(&self.api, map, &self.timing, |texts| self.look(texts), &progress) => match never {},
            never = self.age() => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use swansong_fault_model::device_plugin::{FRESH_FOR, check_code};

    use super::*;

    fn watch() -> Arc<DevicePluginWatch> {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let api = ApiServer::new(nowhere, Duration::from_secs(1)).expect("a client");
        Arc::new(DevicePluginWatch::new("n", Arc::new(api), Arc::default(), Clock::start()))
    }

    fn published(update_time: i64) -> Texts {
        let list = std::collections::BTreeMap::new();
        let check_code = check_code(&list, update_time);
        let text = serde_json::json!({"DeviceInfo": {"DeviceList": list, "UpdateTime": update_time}, "CheckCode": check_code});
        Texts::from([("DeviceInfoCfg".to_owned(), Some(text.to_string()))])
    }

    #[tokio::test(start_paused = true)]
    async fn that_nobody_publishes_is_noticed() {
        let watch = watch();
        let mut publishes = watch.publishes();
        let aging = tokio::spawn({
            let watch = Arc::clone(&watch);
            async move { match watch.age().await {} }
        });
        assert_eq!(*publishes.borrow_and_update(), PluginState::Unknown);
        watch.look(None);
        assert_eq!(*publishes.borrow_and_update(), PluginState::Missing);
        watch.look(Some(&published(1)));
        assert_eq!(*publishes.borrow_and_update(), PluginState::Fresh);
        tokio::time::sleep(Duration::from_millis(FRESH_FOR - 10)).await;
        watch.look(Some(&published(2)));
        assert!(!publishes.has_changed().expect("open"), "still fresh");
        publishes.changed().await.expect("open");
        assert!(matches!(*publishes.borrow_and_update(), PluginState::Stale { age } if age > FRESH_FOR));
        assert!(watch.clock.now() >= 2 * FRESH_FOR - 10);
        watch.look(Some(&published(3)));
        assert_eq!(*publishes.borrow_and_update(), PluginState::Fresh);
        watch.look(Some(&Texts::new()));
        assert!(matches!(*publishes.borrow_and_update(), PluginState::Invalid(_)));
        aging.abort();
    }
}
