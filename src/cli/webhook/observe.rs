//! What happens beside the server, as logs and metrics.

use std::sync::Arc;

use swansong_certs::{CertificateMetrics, Event, Observer};
use swansong_reset_config::News;
use swansong_webhook::server::Metrics;
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

/// Turns what the job guard tells into logs and metrics.
pub(super) fn job_guard(metrics: Arc<Metrics>) -> Arc<dyn swansong_reset_config::Observer> {
    Arc::new(move |news: &News| {
        count_job_guard(&metrics, news);
        match news {
            // Each look changes a number.
            News::Standings(_) => {}
            news if news.is_failure() => warn!(problem = %news, "job guard"),
            news => info!(%news, "job guard"),
        }
    })
}

fn count_job_guard(metrics: &Metrics, news: &News) {
    let metrics = metrics.job_guard();
    match news {
        News::Watching(what) => metrics.watch(what.as_str(), true),
        News::Absent(what) | News::NotWatching { what, .. } => metrics.watch(what.as_str(), false),
        News::Created { .. } => metrics.created(),
        News::Failed { about, .. } => metrics.failed(about.as_str()),
        News::Standings(now) => {
            metrics.stand([now.pending, now.sound, now.nothing, now.unusable, now.refused]);
        }
        News::Complained { .. } | News::Refused { .. } | News::Recovered => {}
    }
}
