//! The relay's metrics.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use swansong_clusterd::SendError;
use swansong_clusterd::process_fault::ReportError;
use swansong_fault_model::Assertion;
use swansong_outbox::Counts;

use super::preflight::{Objection, Why};
use super::route::Route;
use super::terms::Hold;

type Labels<const N: usize> = [(&'static str, &'static str); N];

const RESULTS: [&str; 5] = ["ok", "refused", "invalid", "unavailable", "odd"];
const REPORTS: [&str; 4] = ["ok", "unknown_job", "refused", "unavailable"];
/// What is counted of outcomes; whatever else ClusterD says is `other`.
const OUTCOMES: [&str; 8] = [
    "dump-success",
    "dump-failed",
    "retry-failed",
    "recover-failed",
    "exit-completed",
    "gone",
    "unknown",
    "other",
];

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    seen: Family<Labels<1>, Counter>,
    dropped: Counter,
    batches: Family<Labels<2>, Counter>,
    accepted: Family<Labels<1>, Counter>,
    objections: Family<Labels<1>, Gauge<i64, AtomicI64>>,
    held: Family<Labels<1>, Gauge<i64, AtomicI64>>,
    outbox: Family<Labels<1>, Gauge<i64, AtomicI64>>,
    durable: Gauge<i64, AtomicI64>,
    delay: Histogram,
    reports: Family<Labels<1>, Counter>,
    outcomes: Family<Labels<1>, Counter>,
    dump: Histogram,
}

impl Metrics {
    /// Registered, and told from the beginning, so that they can be alerted on.
    pub(crate) fn new(r: &mut Registry) -> Self {
        let metrics = Self {
            seen: Family::default(),
            dropped: Counter::default(),
            batches: Family::default(),
            accepted: Family::default(),
            objections: Family::default(),
            held: Family::default(),
            outbox: Family::default(),
            durable: Gauge::default(),
            delay: Histogram::new([0.5, 1.0, 2.0, 4.0, 5.1, 6.0, 8.0, 12.0, 30.0, 60.0, 300.0]),
            reports: Family::default(),
            outcomes: Family::default(),
            dump: Histogram::new([5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0]),
        };
        r.register(
            "faults_seen",
            "Faults that came, went or happened, joined over all sources",
            metrics.seen.clone(),
        );
        r.register(
            "faults_dropped",
            "Faults of devices that ClusterD can't know, or beyond all measure",
            metrics.dropped.clone(),
        );
        r.register("fault_batches", "Batches sent to ClusterD, by way and answer", metrics.batches.clone());
        r.register("faults_accepted", "Faults and recoveries that ClusterD took", metrics.accepted.clone());
        r.register("faults_held", "What waits in the outbox, by what for", metrics.held.clone());
        r.register(
            "fault_objections",
            "Why faults are held back, of the device looked at last",
            metrics.objections.clone(),
        );
        r.register("outbox_entries", "What the outbox holds", metrics.outbox.clone());
        r.register("outbox_durable", "1 if the outbox is on disk", metrics.durable.clone());
        r.register(
            "fault_delay_seconds",
            "From when a fault was seen to when ClusterD took it",
            metrics.delay.clone(),
        );
        r.register(
            "fault_rank_reports",
            "Jobs whose lost ranks ClusterD was told directly, by its answer",
            metrics.reports.clone(),
        );
        r.register(
            "fault_outcomes",
            "Jobs that faults hit, by what became of them",
            metrics.outcomes.clone(),
        );
        r.register(
            "fault_dump_seconds",
            "From when ClusterD took a fault to dump-success",
            metrics.dump.clone(),
        );
        for assertion in ["occur", "recover", "once"] {
            let _ = metrics.seen.get_or_create(&[("assertion", assertion)]);
            let _ = metrics.accepted.get_or_create(&[("assertion", assertion)]);
        }
        for route in Route::ALL {
            for result in RESULTS {
                let _ = metrics.batches.get_or_create(&[("route", route.as_str()), ("result", result)]);
            }
        }
        for result in REPORTS {
            let _ = metrics.reports.get_or_create(&[("result", result)]);
        }
        for outcome in OUTCOMES {
            let _ = metrics.outcomes.get_or_create(&[("outcome", outcome)]);
        }
        metrics.holds(&[]);
        metrics.objects(&[]);
        // Where nothing is relayed nothing is amiss.
        metrics.outbox(Counts::default(), true);
        metrics
    }

    pub(crate) fn saw(&self, assertion: Assertion) {
        self.seen.get_or_create(&[("assertion", name(assertion))]).inc();
    }

    pub(crate) fn dropped(&self, total: u64) {
        self.dropped.inc_by(total.saturating_sub(self.dropped.get()));
    }

    pub(crate) fn sent(&self, route: Route, answer: &Result<(), SendError>) {
        let result = match answer {
            Ok(()) => "ok",
            Err(SendError::TooMany(_)) => "refused",
            Err(SendError::Invalid(_) | SendError::InvalidBatch(_)) => "invalid",
            Err(SendError::Unavailable(_) | SendError::RetryAfter { .. }) => "unavailable",
            Err(SendError::UnexpectedResponse { .. }) => "odd",
        };
        self.batches.get_or_create(&[("route", route.as_str()), ("result", result)]).inc();
    }

    pub(crate) fn accepted(&self, assertion: Assertion, seconds: Option<f64>) {
        self.accepted.get_or_create(&[("assertion", name(assertion))]).inc();
        if let Some(seconds) = seconds {
            self.delay.observe(seconds);
        }
    }

    pub(crate) fn holds(&self, holds: &[Hold]) {
        for hold in Hold::ALL {
            let count = holds.iter().filter(|&&other| other == hold).count();
            self.held.get_or_create(&[("why", hold.as_str())]).set(number(count));
        }
    }

    pub(crate) fn objects(&self, objections: &[Objection]) {
        for why in Why::NAMES {
            let count = objections.iter().filter(|objection| objection.why.as_str() == why).count();
            self.objections.get_or_create(&[("why", why)]).set(number(count));
        }
    }

    pub(crate) fn outbox(&self, counts: Counts, durable: bool) {
        for (state, count) in
            [("pending", counts.pending), ("standing", counts.standing), ("refused", counts.dead_letters)]
        {
            self.outbox.get_or_create(&[("state", state)]).set(number(count));
        }
        self.durable.set(durable.into());
    }

    pub(crate) fn reported(&self, result: &Result<(), ReportError>) {
        let result = match result {
            Ok(()) => "ok",
            Err(ReportError::UnknownJob(_)) => "unknown_job",
            Err(ReportError::Refused { .. } | ReportError::NoRanks) => "refused",
            Err(ReportError::Unavailable(_)) => "unavailable",
        };
        self.reports.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn outcome(&self, outcome: &str, seconds: Option<f64>) {
        let known = OUTCOMES.into_iter().find(|known| *known == outcome).unwrap_or("other");
        self.outcomes.get_or_create(&[("outcome", known)]).inc();
        if let Some(seconds) = seconds.filter(|_| known == "dump-success") {
            self.dump.observe(seconds);
        }
    }
}

const fn name(assertion: Assertion) -> &'static str {
    match assertion {
        Assertion::Occur => "occur",
        Assertion::Recover => "recover",
        Assertion::Once => "once",
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
