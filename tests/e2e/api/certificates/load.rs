//! Requests during a rotation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::interval;

use super::Installation;
use crate::support::{asking_pod, create};

/// Creates Pods continuously, several at a time.
pub(super) struct Load {
    width: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    /// The number of created Pods, and the errors.
    outcome: JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    pub(super) fn start(site: &Installation) -> Self {
        let (client, namespace) = (site.client.clone(), site.watched.clone());
        let (width, stop) = (Arc::new(AtomicUsize::new(2)), Arc::new(AtomicBool::new(false)));
        let (wide, stopped) = (Arc::clone(&width), Arc::clone(&stop));
        let outcome = tokio::spawn(async move {
            let (mut created, mut failures) = (0, Vec::new());
            // Other tests share this machine.
            let mut ticks = interval(Duration::from_millis(50));
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let mut round = JoinSet::new();
                for number in 0..wide.load(Ordering::Relaxed) {
                    let pod = asking_pod(
                        &format!("load-{created}-{number}"),
                        &json!([{"name": "ascend", "image": "x"}]),
                    );
                    let (client, namespace) = (client.clone(), namespace.clone());
                    round.spawn(async move { create(&client, &namespace, pod).await });
                }
                for outcome in round.join_all().await {
                    match outcome {
                        Ok(_) => created += 1,
                        Err(error) => failures.push(error.to_string()),
                    }
                }
            }
            (created, failures)
        });
        Self { width, stop, outcome }
    }

    /// Creates more at a time, so that the API server opens further connections.
    pub(super) fn widen(&self) {
        self.width.fetch_add(4, Ordering::Relaxed);
    }

    pub(super) async fn stop(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        self.outcome.await.unwrap()
    }
}
