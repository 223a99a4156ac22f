//! A histogram of durations without a lock: the one of prometheus-client has a mutex, on which the workers would meet
//! with every review.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds of the buckets, in microseconds: from the goal (a few) to what must never be.
const BOUNDS: [u64; 14] =
    [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 1_000_000];

#[derive(Debug, Clone, Default)]
pub(super) struct Histogram(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// One more than bounds, for what is longer than all of them.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(super) fn observe(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| nanoseconds <= bound * 1_000).unwrap_or(BOUNDS.len());
        self.0.buckets[bucket].fetch_add(1, Relaxed);
        self.0.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sum of seconds is read with far fewer digits than f64 keeps"
)]
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        let bounds = BOUNDS.iter().map(|bound| seconds(bound * 1_000)).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = seconds(self.0.nanoseconds.load(Relaxed));
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_inclusive() {
        let histogram = Histogram::default();
        for microseconds in [5, 6, 2_000_000] {
            histogram.observe(Duration::from_micros(microseconds));
        }
        let mut registry = Registry::default();
        registry.register("x", "X", histogram);
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).expect("encodes");
        for line in [
            "x_bucket{le=\"5e-06\"} 1",
            "x_bucket{le=\"1e-05\"} 2",
            "x_bucket{le=\"1\"} 2",
            "x_bucket{le=\"+Inf\"} 3",
            "x_sum 2.000011",
            "x_count 3",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
