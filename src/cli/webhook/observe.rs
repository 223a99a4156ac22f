//! What happens beside the server, as logs and metrics.

use std::sync::Arc;

use swansong_certs::{CertificateMetrics, Event, Observer};
use tracing::{info, warn};

/// Reports events of the certificate to logs and metrics.
pub(super) fn certificate(metrics: CertificateMetrics) -> Arc<dyn Observer> {
    Arc::new(move |event: &Event| {
        metrics.observe(event);
        if event.is_failure() {
            warn!(problem = %event, "certificate");
        } else {
            info!(%event, "certificate");
        }
    })
}
