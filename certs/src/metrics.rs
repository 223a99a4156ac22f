//! Metrics of certificates.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use strum::IntoEnumIterator;
use swansong_runtime::metrics::registered;

use crate::event::{Event, EventKind};

type Label = [(&'static str, &'static str); 1];

/// Counts events, and exports when certificates expire.
#[derive(Debug)]
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
        let clock_skew = registered(
            registry,
            "clock_skew_seconds",
            "How far this machine's clock is ahead of the API server's; 0 within the tolerance",
        );
        let tls = registry.sub_registry_with_prefix("tls");
        let metrics = Self {
            not_after: registered(
                tls,
                "certificate_not_after_timestamp_seconds",
                "When the certificate in use expires; 0 while there is none",
            ),
            failures: registered(
                tls,
                "reload_failures",
                "Failed checks of the certificate files, the Secret, the caBundle or the client CAs, by source",
            ),
            events: registered(tls, "events", "Events of the certificate and its CA, by event"),
            ca_not_after: registered(
                tls,
                "ca_not_after_timestamp_seconds",
                "When the CA in use expires; 0 with certificates from files",
            ),
            trusted_cas: registered(tls, "trusted_cas", "CAs that belong in the caBundle"),
            next_ca_pending: registered(
                tls,
                "next_ca_pending",
                "Whether a next CA is announced and not yet in use",
            ),
            clock_skew,
        };
        // An alert on an increase requires that the series exists before the first event.
        for kind in EventKind::iter() {
            metrics.event(kind);
        }
        metrics
    }

    /// Updates the metrics by an event.
    pub fn observe(&self, event: &Event) {
        self.event(event.into()).inc();
        match event {
            Event::Loaded { not_after, .. } => {
                self.not_after.set(not_after.as_second());
            }
            Event::Failed { source, .. } => {
                self.failures.get_or_create(&[("source", (*source).into())]).inc();
            }
            Event::CasChanged { not_after, trusted, next_pending, .. } => {
                self.ca_not_after.set(not_after.as_second());
                self.trusted_cas.set(i64::try_from(*trusted).unwrap_or(i64::MAX));
                self.next_ca_pending.set(i64::from(*next_pending));
            }
            Event::ClockSkewDetected { skew } => {
                self.clock_skew.set(skew.0);
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

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text;

    use super::*;
    use crate::certificate::CaId;
    use crate::event::ClockSkew;

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
        for skew in [400, -400] {
            metrics.observe(&Event::ClockSkewDetected { skew: ClockSkew(skew) });
            has(&registry, &format!("swansong_clock_skew_seconds {skew}"));
        }
        metrics.observe(&Event::ClockSkewResolved);
        has(&registry, "swansong_clock_skew_seconds 0");
    }

    #[test]
    fn cas_are_exported_with_their_expiry() {
        let (registry, metrics) = registered();
        metrics.observe(&Event::CasChanged {
            current: CaId::parse("0123456789abcdef").expect("an ID"),
            not_after: k8s_openapi::jiff::Timestamp::from_second(7).expect("a time"),
            trusted: 2,
            next_pending: true,
        });
        has(&registry, "swansong_tls_ca_not_after_timestamp_seconds 7");
        has(&registry, "swansong_tls_trusted_cas 2");
        has(&registry, "swansong_tls_next_ca_pending 1");
    }
}
