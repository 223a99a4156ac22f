//! Registration of metrics.

use prometheus_client::registry::{Metric, Registry};

/// Creates a metric and registers it.
pub fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
