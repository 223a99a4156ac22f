//! Several replicas that check in turn while time passes.

use std::time::Duration;

use serde_json::json;
use swansong_certs::{Event, ROTATE, Settings};
use swansong_fake_apiserver::FakeApiServer;

use crate::replica::{Replica, SECRET, api_server};

pub(crate) const ROUND: Duration = Duration::from_secs(10);
pub(crate) const SETTLE_TIME: Duration = Duration::from_mins(1);
/// The validity of a leaf and the clock tolerance: no previous CA remains longer.
pub(crate) const OVERLAP: Duration = Duration::from_mins(25);

pub(crate) fn settings() -> Settings {
    Settings { settle_time: SETTLE_TIME, ..crate::support::settings() }
}

/// Leaves that expire within a test.
pub(crate) fn short_lived() -> Settings {
    Settings { leaf_validity: Duration::from_mins(20), ..settings() }
}

/// Replicas that check every ten seconds.
pub(crate) struct Replicas {
    pub(crate) api: FakeApiServer,
    pub(crate) replicas: Vec<Replica>,
}

impl Replicas {
    pub(crate) async fn new(count: usize, settings: &Settings) -> Self {
        let api = api_server();
        let replicas = (0..count).map(|_| Replica::with(&api, settings.clone())).collect();
        let mut replicas = Self { api, replicas };
        replicas.check().await;
        replicas
    }

    pub(crate) async fn check(&mut self) {
        for replica in &mut self.replicas {
            replica.manager.reconcile().await.unwrap();
        }
    }

    pub(crate) async fn rounds(&mut self, count: u32) {
        self.pass(ROUND * count).await;
    }

    /// Lets time pass, with the checks of all replicas.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(ROUND);
            left -= step;
            tokio::time::advance(step).await;
            self.replicas.iter().for_each(|replica| replica.clock.pass(step));
            self.check().await;
        }
    }

    /// Lets wall-clock time pass without checks.
    pub(crate) fn skip(&self, time: Duration) {
        self.replicas.iter().for_each(|replica| replica.clock.pass(time));
    }

    pub(crate) fn count(&self, is_counted: impl Fn(&Event) -> bool) -> usize {
        self.replicas.iter().map(|replica| replica.events.count(&is_counted)).sum()
    }

    /// The serial numbers that are served, each once.
    pub(crate) fn serials(&self) -> Vec<String> {
        let mut serials: Vec<_> = self.replicas.iter().map(Replica::serial).collect();
        serials.dedup();
        serials
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        let secret = self.api.get(SECRET).unwrap();
        secret["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }

    pub(crate) fn request(&self, value: &str) {
        self.api.edit(SECRET, |secret| secret["metadata"]["annotations"][ROTATE] = json!(value));
    }
}
