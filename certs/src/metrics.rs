//! Metrics of certificates.

use std::sync::atomic::AtomicI64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use strum::IntoEnumIterator;

use crate::event::{Event, EventKind};

type Label = [(&'static str, &'static str); 1];

/// Counts events, and exports when certificates expire.
#[derive(Debug, Default)]
pub struct CertificateMetrics {
    not_after: Gauge<i64, AtomicI64>,
    failures: Family<Label, Counter>,
    events: Family<Label, Counter>,
    ca_not_after: Gauge<i64, AtomicI64>,
    trusted_cas: Gauge<i64, AtomicI64>,
    next_ca_pending: Gauge<i64, AtomicI64>,
    clock_skew: Gauge<i64, AtomicI64>,
}

impl CertificateMetrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let tls = registry.sub_registry_with_prefix("tls");
        tls.register(
            "certificate_not_after_timestamp_seconds",
            "When the certificate in use expires; 0 while there is none",
            metrics.not_after.clone(),
        );
        tls.register(
            "reload_failures",
            "Failed checks of the certificate files, the Secret, the caBundle or the client CAs, by source",
            metrics.failures.clone(),
        );
        tls.register("events", "Events of the certificate and its CA, by event", metrics.events.clone());
        tls.register(
            "ca_not_after_timestamp_seconds",
            "When the CA in use expires; 0 with certificates from files",
            metrics.ca_not_after.clone(),
        );
        tls.register("trusted_cas", "CAs that belong in the caBundle", metrics.trusted_cas.clone());
        tls.register(
            "next_ca_pending",
            "Whether a next CA is announced and not yet in use",
            metrics.next_ca_pending.clone(),
        );
        registry.register(
            "clock_skew_seconds",
            "How far this machine's clock is ahead of the API server's; 0 within the tolerance",
            metrics.clock_skew.clone(),
        );
        // An alert on an increase requires that the series exists before the first event.
        for kind in EventKind::iter() {
            metrics.event(kind);
        }
        metrics
    }

    /// Updates the metrics by an event.
    pub fn observe(&self, event: &Event) {
        self.event(event.kind()).inc();
        match event {
            Event::Loaded { not_after, .. } => {
                self.not_after.set(unix(*not_after));
            }
            Event::Failed { source, .. } => {
                self.failures.get_or_create(&[("source", (*source).into())]).inc();
            }
            Event::CasChanged { not_after, trusted, next_pending, .. } => {
                self.ca_not_after.set(unix(*not_after));
                self.trusted_cas.set(i64::try_from(*trusted).unwrap_or(i64::MAX));
                self.next_ca_pending.set(i64::from(*next_pending));
            }
            Event::ClockSkewDetected { skew } => {
                let by = seconds(skew.by);
                self.clock_skew.set(if skew.ahead { by } else { -by });
            }
            Event::ClockSkewResolved => {
                self.clock_skew.set(0);
            }
            _ => {}
        }
    }

    fn event(&self, kind: EventKind) -> Counter {
        self.events.get_or_create_owned(&[("event", kind.into())])
    }
}

fn unix(time: SystemTime) -> i64 {
    seconds(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text;

    use super::*;
    use crate::ca_certificate::CaId;
    use crate::clock::ClockSkew;

    fn registered() -> (Registry, CertificateMetrics) {
        let mut registry = Registry::with_prefix("swansong");
        let metrics = CertificateMetrics::register(&mut registry);
        (registry, metrics)
    }

    fn has(registry: &Registry, line: &str) {
        let mut text = String::new();
        prometheus_text::encode(&mut text, registry).expect("text");
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }

    #[test]
    fn every_event_has_a_series_before_it_happens() {
        let (registry, metrics) = registered();
        for kind in EventKind::iter() {
            let series = format!("swansong_tls_events_total{{event=\"{}\"}}", <&str>::from(kind));
            has(&registry, &format!("{series} 0"));
            metrics.event(kind).inc();
            has(&registry, &format!("{series} 1"));
        }
    }

    #[test]
    fn a_clock_that_is_behind_has_a_negative_skew() {
        let (registry, metrics) = registered();
        has(&registry, "swansong_clock_skew_seconds 0");
        for (ahead, line) in
            [(true, "swansong_clock_skew_seconds 400"), (false, "swansong_clock_skew_seconds -400")]
        {
            let skew = ClockSkew { by: Duration::from_secs(400), ahead };
            metrics.observe(&Event::ClockSkewDetected { skew });
            has(&registry, line);
        }
        metrics.observe(&Event::ClockSkewResolved);
        has(&registry, "swansong_clock_skew_seconds 0");
    }

    #[test]
    fn cas_are_exported_with_their_expiry() {
        let (registry, metrics) = registered();
        metrics.observe(&Event::CasChanged {
            current: CaId::parse("0123456789abcdef").expect("an ID"),
            not_after: UNIX_EPOCH + Duration::from_secs(7),
            trusted: 2,
            next_pending: true,
        });
        has(&registry, "swansong_tls_ca_not_after_timestamp_seconds 7");
        has(&registry, "swansong_tls_trusted_cas 2");
        has(&registry, "swansong_tls_next_ca_pending 1");
    }
}
