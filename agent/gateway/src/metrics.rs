//! What is counted.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use swansong_clusterd::SendError;

/// A label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: u16,
}

/// How a batch ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// All counters.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Status, Counter>,
    batches: Family<Outcome, Counter>,
    faults: Counter,
    /// Requests that wait; set when they are asked for.
    pub(crate) waiting: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let metrics = registry.sub_registry_with_prefix("swansong_relay");
        let (requests, batches) = (Family::default(), Family::default());
        let (faults, waiting) = (Counter::default(), Gauge::default());
        metrics.register("requests", "Requests of agents by the status of the answer", requests.clone());
        metrics.register("batches", "Messages to ClusterD by how they ended", batches.clone());
        metrics.register("faults", "Faults that ClusterD has taken", faults.clone());
        metrics.register("waiting", "Requests that wait for ClusterD", waiting.clone());
        Self { registry, requests, batches, faults, waiting }
    }
}

impl Metrics {
    pub(crate) fn request(&self, status: u16) {
        self.requests.get_or_create(&Status { status }).inc();
    }

    pub(crate) fn batch(&self, sent: &Result<(), SendError>, faults: usize) {
        let outcome = match sent {
            Ok(()) => "taken",
            Err(SendError::TooMany(_)) => "too_many",
            Err(SendError::Unavailable(_) | SendError::RetryAfter { .. }) => "unavailable",
            Err(_) => "refused",
        };
        self.batches.get_or_create(&Outcome { outcome }).inc();
        if sent.is_ok() {
            self.faults.inc_by(u64::try_from(faults).unwrap_or_default());
        }
    }

    /// For Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String has no way to fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}
