//! Metrics of reviews and of the configuration. All label values are known at compile time; none comes from a client.

use std::sync::atomic::AtomicI64;
use swansong_api::documented::Documented as _;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use strum::VariantArray as _;
use swansong_runtime::config::ConfigMetrics;
use swansong_runtime::metrics::registered;

use crate::review::{Answer, Kind, Verdict};
use swansong_inject::reason::Reason;

/// Upper bounds of the buckets of review durations, in seconds.
const DURATION_BUCKETS: [f64; 14] =
    [5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 1e-1, 1.0];

/// Why a request got no admission response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Refusal {
    /// No admission review (400).
    NotAReview,
    /// The connection broke, or the body isn't valid HTTP (400).
    Broken,
    /// The body took too long, and what arrived of it has no uid to answer to (408).
    TooSlow,
    /// The body is too large (413).
    TooLarge,
    /// Too many large bodies at a time, and what arrived of this one has no uid to answer to (503).
    Overloaded,
}

impl Refusal {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    /// Why the review wasn't processed; `None` if the request wasn't a review.
    pub(super) const fn unprocessed(self) -> Option<Reason> {
        match self {
            Self::NotAReview => None,
            Self::Broken => Some(Reason::BodyIncomplete),
            Self::TooSlow => Some(Reason::BodyTimeout),
            Self::TooLarge => Some(Reason::BodyTooLarge),
            Self::Overloaded => Some(Reason::Overloaded),
        }
    }
}

/// Metrics of reviews and of the configuration.
#[derive(Debug)]
pub struct Metrics {
    reviews: Family<[(&'static str, &'static str); 3], Counter>,
    warnings: Family<Label, Counter>,
    unprocessed: Family<Label, Counter>,
    refusals: Family<Label, Counter>,
    pub(super) duration: Histogram,
    pub(super) in_flight: Gauge<i64, AtomicI64>,
    pub(super) large_bodies: Gauge<i64, AtomicI64>,
    /// Metrics of the configuration file.
    pub config: ConfigMetrics,
}

type Label = [(&'static str, &'static str); 1];

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let duration = Histogram::new(DURATION_BUCKETS);
        let help = "Time from the last byte of a review to its response";
        registry.register("review_duration_seconds", help, duration.clone());
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the program", version);
        let metrics = Self {
            reviews: registered(
                registry,
                "reviews",
                "Admission reviews answered, by kind of object, result and reason",
            ),
            warnings: registered(registry, "review_warnings", "Warnings sent to users, by reason"),
            unprocessed: registered(
                registry,
                "reviews_unprocessed",
                "Admission reviews admitted or denied without being processed, by reason",
            ),
            refusals: registered(
                registry,
                "requests_refused",
                "Requests that got no admission response, by cause",
            ),
            duration,
            in_flight: registered(registry, "requests_in_flight", "Requests being read or answered"),
            large_bodies: registered(
                registry,
                "large_body_bytes",
                "Memory reserved for reviews larger than 16 KiB",
            ),
            config: ConfigMetrics::default(),
        };
        metrics.config.register(registry);
        metrics.create_series();
        metrics
    }

    /// Alerts need the series before the first event.
    fn create_series(&self) {
        for kind in [Kind::Pod, Kind::AscendJob, Kind::VolcanoJob] {
            for verdict in [Verdict::Injected, Verdict::Complete, Verdict::Failed(Reason::InternalError)] {
                self.reviews.get_or_create_owned(&review_labels(kind, verdict));
            }
        }
        let refused = Refusal::VARIANTS.iter().filter_map(|refusal| refusal.unprocessed());
        for reason in refused.chain([Reason::ObjectInvalid, Reason::InternalError, Reason::DeadlineExceeded])
        {
            self.unprocessed.get_or_create_owned(&[("reason", reason.as_str())]);
        }
        for refusal in Refusal::VARIANTS {
            self.refusals.get_or_create_owned(&[("cause", refusal.as_str())]);
        }
    }

    pub(super) fn answered(&self, answer: &Answer<'_>) {
        self.reviews.get_or_create(&review_labels(answer.kind, answer.verdict)).inc();
        if let Some(reason) = answer.verdict.unprocessed() {
            self.unprocessed.get_or_create(&[("reason", reason.as_str())]).inc();
        }
        for reason in &answer.warnings {
            self.warnings.get_or_create(&[("reason", reason.as_str())]).inc();
        }
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        self.refusals.get_or_create(&[("cause", refusal.as_str())]).inc();
        if let Some(reason) = refusal.unprocessed() {
            self.unprocessed.get_or_create(&[("reason", reason.as_str())]).inc();
        }
    }
}

fn review_labels(kind: Kind, verdict: Verdict) -> [(&'static str, &'static str); 3] {
    let reason = verdict.reason().map_or("", Reason::as_str);
    [("kind", kind.as_str()), ("result", verdict.as_str()), ("reason", reason)]
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text;

    use super::*;

    #[test]
    fn series_of_alerts_exist_from_the_start() {
        let mut registry = Registry::with_prefix("swansong");
        Metrics::register(&mut registry);
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).expect("encodes");
        for line in [
            concat!("swansong_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            r#"swansong_reviews_total{kind="AscendJob",result="failed",reason="InternalError"} 0"#,
            r#"swansong_reviews_total{kind="Pod",result="injected",reason=""} 0"#,
            r#"swansong_requests_refused_total{cause="overloaded"} 0"#,
            r#"swansong_reviews_unprocessed_total{reason="Overloaded"} 0"#,
            r#"swansong_reviews_unprocessed_total{reason="InternalError"} 0"#,
            "swansong_review_duration_seconds_count 0",
            "swansong_requests_in_flight 0",
            "swansong_config_reload_failures_total 0",
            "swansong_config_loaded_timestamp_seconds 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
