//! What is told of the certificate and its authority.

use std::sync::atomic::AtomicI64;
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Labels, family, gauge, unix};

/// Something that happened to the certificate or its authority, and is no failure to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateEvent {
    /// A certificate was made.
    LeafIssued,
    /// An authority was made and taken into use at once.
    AuthorityIssued,
    /// The successor of an authority was made.
    AuthorityAnnounced,
    /// The successor was taken into use.
    AuthorityPromoted,
    /// An authority is trusted no longer.
    AuthorityRetired,
    /// An authority was in a `caBundle`, and the Secret had forgotten it.
    AuthorityFound,
    /// A `caBundle` was brought into line.
    CaBundleSet,
    /// A certificate is near its end, and nothing has come to replace it.
    ExpiresSoon,
    /// An annotation asked for what there isn't.
    RequestIgnored,
    /// A certificate waits until the API servers have had time to learn of its authority.
    HeldBack,
    /// New authorities that clients are judged by.
    ClientRootsLoaded,
}

impl CertificateEvent {
    const ALL: [Self; 11] = [
        Self::LeafIssued,
        Self::AuthorityIssued,
        Self::AuthorityAnnounced,
        Self::AuthorityPromoted,
        Self::AuthorityRetired,
        Self::AuthorityFound,
        Self::CaBundleSet,
        Self::ExpiresSoon,
        Self::RequestIgnored,
        Self::HeldBack,
        Self::ClientRootsLoaded,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::LeafIssued => "leaf_issued",
            Self::AuthorityIssued => "authority_issued",
            Self::AuthorityAnnounced => "authority_announced",
            Self::AuthorityPromoted => "authority_promoted",
            Self::AuthorityRetired => "authority_retired",
            Self::AuthorityFound => "authority_found",
            Self::CaBundleSet => "ca_bundle_set",
            Self::ExpiresSoon => "expires_soon",
            Self::RequestIgnored => "request_ignored",
            Self::HeldBack => "held_back",
            Self::ClientRootsLoaded => "client_roots_loaded",
        }
    }
}

/// The certificate's part of the [`Metrics`](super::Metrics).
#[derive(Debug)]
pub struct CertificateMetrics {
    not_after: Gauge<i64, AtomicI64>,
    failures: Family<Labels<1>, Counter>,
    events: Family<Labels<1>, Counter>,
    authority_not_after: Gauge<i64, AtomicI64>,
    authorities_trusted: Gauge<i64, AtomicI64>,
    clock_skew: Gauge<i64, AtomicI64>,
}

impl CertificateMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            not_after: gauge(
                registry,
                "tls_certificate_not_after_timestamp_seconds",
                "When the certificate in use ends",
            ),
            failures: family(
                registry,
                "tls_reload_failures",
                "Times the certificate, its Secret, the caBundle or the authorities of clients were found unusable, by source",
            ),
            events: family(
                registry,
                "tls_events",
                "What this replica did to the certificate and its authority, by event",
            ),
            authority_not_after: gauge(
                registry,
                "tls_authority_not_after_timestamp_seconds",
                "When the authority in use ends",
            ),
            authorities_trusted: gauge(
                registry,
                "tls_authorities_trusted",
                "Authorities that belong into the caBundle",
            ),
            clock_skew: gauge(
                registry,
                "clock_skew_seconds",
                "How far this machine's clock is ahead of the API server's",
            ),
        };
        // An alert sees no increase in a series that is born with its first event.
        for event in CertificateEvent::ALL {
            metrics.event(event);
        }
        metrics
    }

    /// A certificate is in use from now on.
    pub fn loaded(&self, not_after: SystemTime) {
        self.not_after.set(unix(not_after));
    }

    /// A look at `source` found something unusable.
    pub fn failed(&self, source: &'static str) {
        self.failures.get_or_create(&[("source", source)]).inc();
    }

    /// Something happened.
    pub fn happened(&self, event: CertificateEvent) {
        self.event(event).inc();
    }

    /// The authority in use ends then, and so many are trusted.
    pub fn authorities(&self, not_after: SystemTime, trusted: usize) {
        self.authority_not_after.set(unix(not_after));
        self.authorities_trusted.set(i64::try_from(trusted).unwrap_or(i64::MAX));
    }

    /// This machine's clock is off so far.
    pub fn clock_off(&self, by: Duration, ahead: bool) {
        let by = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        self.clock_skew.set(if ahead { by } else { -by });
    }

    fn event(&self, event: CertificateEvent) -> Counter {
        self.events.get_or_create_owned(&[("event", event.as_str())])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    fn holds(metrics: &Metrics, line: &str) {
        let text = metrics.text();
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }

    #[test]
    fn every_event_has_a_series_from_the_start() {
        let metrics = Metrics::new();
        for event in CertificateEvent::ALL {
            let series = format!("swansong_tls_events_total{{event=\"{}\"}}", event.as_str());
            holds(&metrics, &format!("{series} 0"));
            metrics.certificate().happened(event);
            holds(&metrics, &format!("{series} 1"));
        }
    }

    #[test]
    fn a_clock_that_is_behind_shows_below_zero() {
        let metrics = Metrics::new();
        holds(&metrics, "swansong_clock_skew_seconds 0");
        metrics.certificate().clock_off(Duration::from_secs(400), true);
        holds(&metrics, "swansong_clock_skew_seconds 400");
        metrics.certificate().clock_off(Duration::from_secs(400), false);
        holds(&metrics, "swansong_clock_skew_seconds -400");
        metrics.certificate().clock_off(Duration::ZERO, false);
        holds(&metrics, "swansong_clock_skew_seconds 0");
    }

    #[test]
    fn authorities_are_told_with_their_end() {
        let metrics = Metrics::new();
        metrics.certificate().authorities(SystemTime::UNIX_EPOCH + Duration::from_secs(7), 2);
        holds(&metrics, "swansong_tls_authority_not_after_timestamp_seconds 7");
        holds(&metrics, "swansong_tls_authorities_trusted 2");
    }
}
