//! What happens beside the server, as logs and metrics.

use std::sync::Arc;
use std::time::Duration;

use swansong_certs::{Event, Observer};
use swansong_reset_config::News;
use swansong_webhook::server::{CertificateEvent, Metrics};
use tracing::{info, warn};

/// Turns what happens to the certificate into logs and metrics.
pub(super) fn certificate(metrics: Arc<Metrics>) -> Arc<dyn Observer> {
    Arc::new(move |event: &Event| {
        count(&metrics, event);
        if event.is_failure() {
            warn!(problem = %event, "certificate");
        } else {
            info!(news = %event, "certificate");
        }
    })
}

fn count(metrics: &Metrics, event: &Event) {
    let metrics = metrics.certificate();
    let happened = match event {
        Event::Loaded { not_after, .. } => return metrics.loaded(*not_after),
        Event::Failed { source, .. } => return metrics.failed(source.as_str()),
        Event::Authorities { not_after, trusted, .. } => return metrics.authorities(*not_after, *trusted),
        Event::ClockOff { skew } => return metrics.clock_off(skew.by, skew.ahead),
        Event::ClockRight => return metrics.clock_off(Duration::ZERO, false),
        Event::LeafIssued { .. } => CertificateEvent::LeafIssued,
        Event::AuthorityIssued { .. } => CertificateEvent::AuthorityIssued,
        Event::AuthorityAnnounced { .. } => CertificateEvent::AuthorityAnnounced,
        Event::AuthorityPromoted { .. } => CertificateEvent::AuthorityPromoted,
        Event::AuthorityRetired { .. } => CertificateEvent::AuthorityRetired,
        Event::AuthorityFound { .. } => CertificateEvent::AuthorityFound,
        Event::CaBundleSet { .. } => CertificateEvent::CaBundleSet,
        Event::ExpiresSoon { .. } => CertificateEvent::ExpiresSoon,
        Event::RequestIgnored { .. } => CertificateEvent::RequestIgnored,
        Event::HeldBack { .. } => CertificateEvent::HeldBack,
        Event::ClientRootsLoaded { .. } => CertificateEvent::ClientRootsLoaded,
        _ => return,
    };
    metrics.happened(happened);
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
