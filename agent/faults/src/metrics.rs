//! The metrics of the fault pipeline.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use strum::{VariantArray as _, VariantNames as _};
use swansong_clusterd::SendError;
use swansong_fault_model::outcome::Outcome;
use swansong_fault_model::rank_process::NoRankEnded;
use swansong_fault_model::{Assertion, BlockReason, Fault, FaultTracker, Phase};

use crate::preflight::{Objection, Why};
use crate::sender::Route;

const SEND_RESULTS: [&str; 5] = ["ok", "refused", "invalid", "unavailable", "unexpected"];
/// The outcomes that are counted by name.
const OUTCOMES: [&str; 8] = [
    "dump-success",
    "dump-failed",
    "retry-failed",
    "recover-failed",
    "exit-completed",
    "renamed",
    "unknown",
    "other",
];

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges = Family<Labels<1>, Gauge>;

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    reported: Counters<1>,
    dropped: Counter,
    batches: Counters<2>,
    accepted: Counters<1>,
    open: Gauges,
    blocked: Gauges,
    objections: Gauges,
    persisted: Gauge,
    delay: Histogram,
    ranks_ended: Counters<1>,
    outcomes: Counters<1>,
    dump: Histogram,
}

impl Metrics {
    /// Registers all series, with zeros, so that alerts find them from the start.
    pub fn new(r: &mut Registry) -> Self {
        let delay = Histogram::new([0.5, 1.0, 2.0, 4.0, 5.1, 6.0, 8.0, 12.0, 30.0, 60.0, 300.0]);
        let dump = Histogram::new([5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0]);
        let help = "Time from a fault's occurrence to its acceptance by ClusterD";
        r.register("fault_delay_seconds", help, delay.clone());
        let help = "Time from ClusterD's acceptance of a fault to the checkpoint";
        r.register("fault_dump_seconds", help, dump.clone());
        let metrics = Self {
            reported: register(
                r,
                "faults_reported",
                "Faults that began, ended or happened, by all sources together",
            ),
            dropped: register(
                r,
                "faults_dropped",
                "Reports of devices that ClusterD can't have, or beyond any limit",
            ),
            batches: register(r, "fault_batches", "Batches sent to ClusterD, by transport and answer"),
            accepted: register(
                r,
                "faults_accepted",
                "Faults and ends of faults that ClusterD accepted for the first time",
            ),
            open: register(r, "faults_open", "Faults that haven't ended at ClusterD, by phase"),
            blocked: register(r, "faults_blocked", "Faults that aren't sent, by reason"),
            objections: register(
                r,
                "fault_objections",
                "Why no checkpoint would be saved, of the device that was checked last",
            ),
            persisted: register(
                r,
                "fault_state_persisted",
                "1 if the state of faults is on disk, or there is none",
            ),
            delay,
            ranks_ended: register(
                r,
                "fault_ranks_ended",
                "Ranks on lost devices that were to be ended, by result",
            ),
            outcomes: register(r, "fault_outcomes", "Outcomes of the jobs that faults hit"),
            dump,
        };
        metrics.initialize();
        metrics
    }

    fn initialize(&self) {
        for assertion in [Assertion::Occur, Assertion::Recover, Assertion::Once] {
            let _ = self.reported.get_or_create(&[("assertion", assertion.into())]);
            let _ = self.accepted.get_or_create(&[("assertion", assertion.into())]);
        }
        for route in Route::VARIANTS {
            for result in SEND_RESULTS {
                let _ = self.batches.get_or_create(&[("route", route.into()), ("result", result)]);
            }
        }
        for result in ["ok"].iter().chain(NoRankEnded::VARIANTS) {
            let _ = self.ranks_ended.get_or_create(&[("result", result)]);
        }
        for outcome in OUTCOMES {
            let _ = self.outcomes.get_or_create(&[("outcome", outcome)]);
        }
        self.set_open(&FaultTracker::default());
        self.set_objections(&[]);
        self.set_persisted(true);
    }

    pub(crate) fn count_reported(&self, assertion: Assertion) {
        self.reported.get_or_create(&[("assertion", assertion.into())]).inc();
    }

    pub(crate) fn set_dropped(&self, total: u64) {
        self.dropped.inc_by(total.saturating_sub(self.dropped.get()));
    }

    pub(crate) fn count_batch(&self, route: Route, answer: &Result<(), SendError>) {
        let result = match answer {
            Ok(()) => "ok",
            Err(SendError::TooMany(_)) => "refused",
            Err(SendError::Invalid(_) | SendError::InvalidBatch(_)) => "invalid",
            Err(SendError::Unavailable(_) | SendError::RetryAfter { .. }) => "unavailable",
            Err(SendError::UnexpectedResponse { .. }) => "unexpected",
        };
        self.batches.get_or_create(&[("route", route.into()), ("result", result)]).inc();
    }

    /// ClusterD accepted a fault; `seconds` after its occurrence.
    pub(crate) fn count_accepted(&self, assertion: Assertion, seconds: f64) {
        self.accepted.get_or_create(&[("assertion", assertion.into())]).inc();
        if assertion == Assertion::Occur {
            self.delay.observe(seconds);
        }
    }

    pub(crate) fn set_open(&self, tracker: &FaultTracker) {
        let is = |fault: &Fault, name: &str| <&str>::from(&fault.phase) == name;
        for phase in Phase::VARIANTS {
            let count = tracker.faults().filter(|fault| is(fault, phase)).count();
            self.open.get_or_create(&[("phase", phase)]).set(number(count));
        }
        for reason in BlockReason::VARIANTS {
            let is_blocked =
                |fault: &&Fault| matches!(&fault.phase, Phase::Blocked(why) if <&str>::from(why) == *reason);
            let count = tracker.faults().filter(is_blocked).count();
            self.blocked.get_or_create(&[("reason", reason)]).set(number(count));
        }
    }

    pub(crate) fn set_objections(&self, objections: &[Objection]) {
        for reason in Why::VARIANTS {
            let count = objections.iter().filter(|objection| <&str>::from(&objection.why) == *reason).count();
            self.objections.get_or_create(&[("reason", reason)]).set(number(count));
        }
    }

    pub(crate) fn set_persisted(&self, persisted: bool) {
        self.persisted.set(persisted.into());
    }

    pub(crate) fn count_rank_ended(&self, result: &Result<i32, NoRankEnded>) {
        let result = result.as_ref().map_or_else(<&str>::from, |_| "ok");
        self.ranks_ended.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn count_outcome(&self, outcome: &Outcome, seconds: f64) {
        let outcome = match outcome {
            Outcome::Status(status) => OUTCOMES.into_iter().find(|known| known == status).unwrap_or("other"),
            Outcome::Renamed(_) => "renamed",
            Outcome::Unknown(_) => "unknown",
        };
        self.outcomes.get_or_create(&[("outcome", outcome)]).inc();
        if matches!(outcome, "dump-success" | "renamed") {
            self.dump.observe(seconds);
        }
    }
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
