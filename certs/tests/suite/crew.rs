//! A few replicas that look in turn, and a world that time passes in.

use std::time::Duration;

use serde_json::json;
use swansong_certs::{Event, ROTATE, Settings};

use crate::fake_api::{FakeApi, SECRET};
use crate::replica::Replica;

pub(crate) const ROUND: Duration = Duration::from_secs(10);
/// Six rounds.
pub(crate) const SETTLE: Duration = Duration::from_mins(1);
/// Eighteen rounds.
pub(crate) const REPLICA_EXPIRY: Duration = Duration::from_mins(3);

pub(crate) fn settings() -> Settings {
    Settings { settle: SETTLE, replica_expiry: REPLICA_EXPIRY, ..crate::support::settings() }
}

/// Replicas that look every ten seconds.
pub(crate) struct Crew {
    pub(crate) api: FakeApi,
    pub(crate) replicas: Vec<Replica>,
}

impl Crew {
    pub(crate) async fn new(size: usize, settings: &Settings) -> Self {
        let api = FakeApi::new();
        let member = |number: usize| Replica::with(&api, settings.clone(), &format!("webhook-{number}"));
        let replicas = (0..size).map(member).collect();
        let mut crew = Self { api, replicas };
        crew.look().await;
        crew
    }

    pub(crate) async fn look(&mut self) {
        for replica in &mut self.replicas {
            replica.manager.ensure().await.unwrap();
        }
    }

    pub(crate) async fn rounds(&mut self, count: u32) {
        self.pass(ROUND * count).await;
    }

    /// Time passes for everyone; the looks of the replicas fall between.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(ROUND);
            left -= step;
            tokio::time::advance(step).await;
            self.replicas.iter().for_each(|replica| replica.clock.pass(step));
            self.look().await;
        }
    }

    /// Time passes while nobody looks.
    pub(crate) fn sleep(&self, time: Duration) {
        self.replicas.iter().for_each(|replica| replica.clock.pass(time));
    }

    pub(crate) fn seen(&self, what: impl Fn(&Event) -> bool) -> usize {
        self.replicas.iter().map(|replica| replica.events.seen(&what)).sum()
    }

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
