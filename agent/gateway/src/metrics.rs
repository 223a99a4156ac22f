//! The gateway's metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use swansong_clusterd::SendError;
use swansong_runtime::http::encode;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The metrics and their registry.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<StatusLabel, Counter>,
    batches: Family<OutcomeLabel, Counter>,
    faults: Counter,
    /// Updated when metrics are scraped.
    pub(crate) queued_requests: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let metrics = registry.sub_registry_with_prefix("swansong_gateway");
        let (requests, batches) = (Family::default(), Family::default());
        let (faults, queued_requests) = (Counter::default(), Gauge::default());
        metrics.register("requests", "Requests of agents by response status", requests.clone());
        metrics.register("batches", "Messages to ClusterD by outcome", batches.clone());
        metrics.register("faults", "Faults that ClusterD accepted", faults.clone());
        metrics.register("queued_requests", "Requests that wait for ClusterD", queued_requests.clone());
        Self { registry, requests, batches, faults, queued_requests }
    }
}

impl Metrics {
    pub(crate) fn record_request(&self, status: u16) {
        self.requests.get_or_create(&StatusLabel { status }).inc();
    }

    pub(crate) fn record_batch(&self, result: &Result<(), SendError>, faults: usize) {
        let outcome = match result {
            Ok(()) => "accepted",
            Err(SendError::TooMany(_)) => "too_many",
            Err(SendError::Unavailable(_) | SendError::RetryAfter { .. }) => "unavailable",
            Err(_) => "refused",
        };
        self.batches.get_or_create(&OutcomeLabel { outcome }).inc();
        if result.is_ok() {
            self.faults.inc_by(u64::try_from(faults).unwrap_or_default());
        }
    }

    /// The metrics in the text format of Prometheus.
    pub fn text(&self) -> String {
        encode(&self.registry)
    }
}
