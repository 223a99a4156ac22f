//! The server's metrics. Labels have few values, all known at compile time; nothing a client sends becomes one.

mod cause;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub(super) use self::cause::{Closed, Refusal};
use super::histogram::Histogram;
use crate::review::{Answer, Kind, Verdict};
use swansong_inject::reason::Reason;

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Results of a review, see [`Verdict::as_str`].
const RESULTS: usize = 6;

/// Reasons, and one place for none.
const REASONS: usize = Reason::ALL.len() + 1;

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reviews: Handles<3, { RESULTS * REASONS * Kind::ALL.len() }>,
    warnings: Handles<1, { Reason::ALL.len() }>,
    unserved: Handles<1, { Reason::ALL.len() }>,
    refusals: Handles<1, { Refusal::ALL.len() }>,
    closed: Handles<1, { Closed::ALL.len() }>,
    pub(super) duration: Histogram,
    pub(super) in_flight: Gauge<i64, AtomicI64>,
    pub(super) large_bodies: Gauge<i64, AtomicI64>,
    pub(super) connections: Gauge<i64, AtomicI64>,
    pub(super) accepted: Counter,
    pub(super) handshakes: Gauge<i64, AtomicI64>,
    pub(super) handshake_failures: Counter,
    config_failures: Counter,
    config_loaded: Gauge<i64, AtomicI64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics of a server that has done nothing yet.
    pub fn new() -> Self {
        Self::with(|_| ()).0
    }

    /// Creates the metrics together with others that `register` registers.
    pub fn with<T>(register: impl FnOnce(&mut Registry) -> T) -> (Self, T) {
        let mut registry = Registry::with_prefix("swansong");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program", build);
        let duration = Histogram::default();
        registry.register(
            "review_duration_seconds",
            "Time from the last byte of a review to its answer",
            duration.clone(),
        );
        let others = register(&mut registry);
        let r = &mut registry;
        let metrics = Self {
            reviews: Handles::of(family(
                r,
                "reviews",
                "Admission reviews answered, by kind of object, result and reason",
            )),
            warnings: Handles::of(family(r, "review_warnings", "Warnings to users, by reason")),
            unserved: Handles::of(family(
                r,
                "reviews_unserved",
                "Reviews that didn't get the look that they should have got, by reason",
            )),
            refusals: Handles::of(family(
                r,
                "requests_refused",
                "Requests that got no review's answer, by cause",
            )),
            closed: Handles::of(family(
                r,
                "connections_closed",
                "Connections closed before their client did, by cause",
            )),
            duration,
            in_flight: gauge(r, "requests_in_flight", "Requests being read or answered"),
            large_bodies: gauge(r, "large_body_bytes", "Memory set aside for reviews beyond 16 KiB"),
            connections: gauge(r, "connections", "Open connections"),
            accepted: counter(r, "connections_accepted", "Connections accepted"),
            handshakes: gauge(r, "tls_handshakes_in_progress", "TLS handshakes in progress"),
            handshake_failures: counter(
                r,
                "tls_handshake_failures",
                "TLS handshakes that failed or took too long",
            ),
            config_failures: counter(
                r,
                "config_reload_failures",
                "Times the configuration file was found unusable",
            ),
            config_loaded: gauge(
                r,
                "config_loaded_timestamp_seconds",
                "When the configuration in use was loaded",
            ),
            registry,
        };
        metrics.make_known();
        (metrics, others)
    }

    /// Makes series appear that alerts stand on: one that is born with its first event shows no increase by it.
    fn make_known(&self) {
        for kind in [Kind::Pod, Kind::AscendJob, Kind::VolcanoJob] {
            for verdict in [Verdict::Injected, Verdict::Complete, Verdict::Failed(Reason::InternalError)] {
                self.review(kind, verdict);
            }
        }
        for refusal in Refusal::ALL {
            self.refusal(refusal);
            if let Some(reason) = refusal.unserved() {
                self.unserved(reason);
            }
        }
        for reason in [Reason::ObjectInvalid, Reason::InternalError, Reason::DeadlineExceeded] {
            self.unserved(reason);
        }
        for cause in Closed::ALL {
            self.closing(cause);
        }
    }

    /// In Prometheus' text format.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(8 << 10);
        prometheus_text::encode(&mut text, &self.registry).expect("writing into a string doesn't fail");
        text
    }

    /// A review got its answer.
    pub(super) fn answered(&self, answer: &Answer<'_>) {
        self.review(answer.kind, answer.verdict).inc();
        if let Some(reason) = answer.verdict.unserved() {
            self.unserved(reason).inc();
        }
        for reason in &answer.warnings {
            self.warnings.at(*reason as usize, || [("reason", reason.as_str())]).inc();
        }
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        self.refusal(refusal).inc();
        if let Some(reason) = refusal.unserved() {
            self.unserved(reason).inc();
        }
    }

    pub(super) fn closed(&self, cause: Closed) {
        self.closing(cause).inc();
    }

    fn closing(&self, cause: Closed) -> &Counter {
        self.closed.at(cause as usize, || [("cause", cause.as_str())])
    }

    fn unserved(&self, reason: Reason) -> &Counter {
        self.unserved.at(reason as usize, || [("reason", reason.as_str())])
    }

    fn refusal(&self, refusal: Refusal) -> &Counter {
        self.refusals.at(refusal as usize, || [("cause", refusal.as_str())])
    }

    fn review(&self, kind: Kind, verdict: Verdict) -> &Counter {
        let result = match verdict {
            Verdict::Injected => 0,
            Verdict::Complete => 1,
            Verdict::Skipped(_) => 2,
            Verdict::Failed(_) => 3,
            Verdict::Denied(_) => 4,
            Verdict::Shed(_) => 5,
        };
        let reason = verdict.reason().map_or(0, |reason| reason as usize + 1);
        self.reviews.at((kind as usize * RESULTS + result) * REASONS + reason, || {
            let reason = verdict.reason().map_or("", Reason::as_str);
            [("kind", kind.as_str()), ("result", verdict.as_str()), ("reason", reason)]
        })
    }

    /// A configuration is in use from now on.
    pub fn config_loaded(&self) {
        self.config_loaded.set(unix(SystemTime::now()));
    }

    /// The configuration file was found unusable.
    pub fn config_failed(&self) {
        self.config_failures.inc();
    }
}

/// Counters of one family, each looked up once and then at hand by number: the family itself has a lock and a hash map.
#[derive(Debug)]
struct Handles<const LABELS: usize, const N: usize> {
    family: Family<Labels<LABELS>, Counter>,
    handles: Box<[OnceLock<Counter<u64, AtomicU64>>]>,
}

impl<const LABELS: usize, const N: usize> Handles<LABELS, N> {
    fn of(family: Family<Labels<LABELS>, Counter>) -> Self {
        Self { family, handles: (0..N).map(|_| OnceLock::new()).collect() }
    }

    fn at(&self, index: usize, labels: impl FnOnce() -> Labels<LABELS>) -> &Counter {
        self.handles[index].get_or_init(|| self.family.get_or_create_owned(&labels()))
    }
}

fn family<const N: usize>(registry: &mut Registry, name: &str, help: &str) -> Family<Labels<N>, Counter> {
    let family = Family::default();
    registry.register(name, help, family.clone());
    family
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge<i64, AtomicI64> {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

/// Counts one up as long as it lives.
pub(super) struct Held<'m>(&'m Gauge<i64, AtomicI64>);

impl<'m> Held<'m> {
    pub(super) fn of(gauge: &'m Gauge<i64, AtomicI64>) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn unix(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(since).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_review_has_a_series_of_its_own() {
        let metrics = Metrics::new();
        for kind in Kind::ALL {
            for reason in Reason::ALL {
                for verdict in [Verdict::Skipped, Verdict::Failed, Verdict::Denied, Verdict::Shed] {
                    let verdict = verdict(*reason);
                    metrics.review(kind, verdict).inc();
                }
            }
            metrics.review(kind, Verdict::Injected).inc();
            metrics.review(kind, Verdict::Complete).inc();
        }
        let text = metrics.text();
        let counts: Vec<&str> =
            text.lines().filter(|line| line.starts_with("swansong_reviews_total{")).collect();
        assert_eq!(counts.len(), Kind::ALL.len() * (4 * Reason::ALL.len() + 2));
        assert!(counts.iter().all(|line| line.ends_with(" 1")), "one cell for two label sets");
        assert!(
            text.contains(r#"swansong_reviews_total{kind="Pod",result="injected",reason=""} 1"#),
            "{text}"
        );
    }

    #[test]
    fn names_that_alerts_stand_on_are_there_from_the_start() {
        let text = Metrics::new().text();
        for line in [
            concat!("swansong_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            r#"swansong_reviews_total{kind="AscendJob",result="failed",reason="InternalError"} 0"#,
            r#"swansong_requests_refused_total{cause="overloaded"} 0"#,
            r#"swansong_reviews_unserved_total{reason="Overloaded"} 0"#,
            r#"swansong_reviews_unserved_total{reason="InternalError"} 0"#,
            r#"swansong_connections_closed_total{cause="slow_head"} 0"#,
            "swansong_tls_handshakes_in_progress 0",
            "swansong_review_duration_seconds_count 0",
            "swansong_requests_in_flight 0",
            "swansong_connections 0",
            "swansong_connections_accepted_total 0",
            "swansong_tls_handshake_failures_total 0",
            "swansong_config_reload_failures_total 0",
            "swansong_config_loaded_timestamp_seconds 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
