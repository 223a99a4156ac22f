//! The metrics of the fault pipeline.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use strum::{VariantArray as _, VariantNames as _};
use swansong_clusterd::SendError;
use swansong_fault_model::outcome::Outcome;
use swansong_fault_model::rank_process::NoRankEnded;
use swansong_fault_model::{Assertion, BlockReason, Fault, FaultTracker, Phase};

use crate::preflight::{Objection, Why};
use crate::sender::Route;

const SEND_RESULTS: [&str; 5] = ["ok", "refused", "invalid", "unavailable", "unexpected"];
const ASSERTIONS: [Assertion; 3] = [Assertion::Occur, Assertion::Recover, Assertion::Once];
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

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    reported: Family<AssertionLabel, Counter>,
    dropped: Counter,
    batches: Family<BatchLabels, Counter>,
    accepted: Family<AssertionLabel, Counter>,
    open: Family<PhaseLabel, Gauge>,
    blocked: Family<ReasonLabel, Gauge>,
    objections: Family<ReasonLabel, Gauge>,
    persisted: Gauge,
    delay: Histogram,
    ranks_ended: Family<ResultLabel, Counter>,
    outcomes: Family<OutcomeLabel, Counter>,
    dump: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AssertionLabel {
    assertion: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BatchLabels {
    route: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl Metrics {
    /// Registers all series, with zeros, so that alerts find them from the start.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            reported: Family::default(),
            dropped: Counter::default(),
            batches: Family::default(),
            accepted: Family::default(),
            open: Family::default(),
            blocked: Family::default(),
            objections: Family::default(),
            persisted: Gauge::default(),
            delay: Histogram::new([0.5, 1.0, 2.0, 4.0, 5.1, 6.0, 8.0, 12.0, 30.0, 60.0, 300.0]),
            ranks_ended: Family::default(),
            outcomes: Family::default(),
            dump: Histogram::new([5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0]),
        };
        metrics.register(registry);
        metrics.initialize();
        metrics
    }

    fn register(&self, r: &mut Registry) {
        r.register(
            "faults_reported",
            "Faults that began, ended or happened, by all sources together",
            self.reported.clone(),
        );
        r.register(
            "faults_dropped",
            "Reports of devices that ClusterD can't know, or beyond any limit",
            self.dropped.clone(),
        );
        r.register(
            "fault_batches",
            "Batches sent to ClusterD, by transport and answer",
            self.batches.clone(),
        );
        r.register(
            "faults_accepted",
            "Faults and ends of faults that ClusterD accepted for the first time",
            self.accepted.clone(),
        );
        r.register("faults_open", "Faults that haven't ended at ClusterD, by phase", self.open.clone());
        r.register("faults_blocked", "Faults that aren't sent, by reason", self.blocked.clone());
        r.register(
            "fault_objections",
            "Why no checkpoint would be saved, of the device that was checked last",
            self.objections.clone(),
        );
        r.register(
            "fault_state_persisted",
            "1 if the state of faults is on disk, or there is none",
            self.persisted.clone(),
        );
        r.register(
            "fault_delay_seconds",
            "Time from a fault's occurrence to its acceptance by ClusterD",
            self.delay.clone(),
        );
        r.register(
            "fault_ranks_ended",
            "Ranks on lost devices that were to be ended, by result",
            self.ranks_ended.clone(),
        );
        r.register("fault_outcomes", "Outcomes of the jobs that faults hit", self.outcomes.clone());
        r.register(
            "fault_dump_seconds",
            "Time from ClusterD's acceptance of a fault to dump-success",
            self.dump.clone(),
        );
    }

    fn initialize(&self) {
        for assertion in ASSERTIONS {
            let _ = self.reported.get_or_create(&assertion.into());
            let _ = self.accepted.get_or_create(&assertion.into());
        }
        for route in Route::VARIANTS {
            for result in SEND_RESULTS {
                let _ = self.batches.get_or_create(&BatchLabels { route: route.into(), result });
            }
        }
        for result in ["ok"].iter().chain(NoRankEnded::VARIANTS) {
            let _ = self.ranks_ended.get_or_create(&ResultLabel { result });
        }
        for outcome in OUTCOMES {
            let _ = self.outcomes.get_or_create(&OutcomeLabel { outcome });
        }
        self.set_open(&FaultTracker::default());
        self.set_objections(&[]);
        self.set_persisted(true);
    }

    pub(crate) fn count_reported(&self, assertion: Assertion) {
        self.reported.get_or_create(&assertion.into()).inc();
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
        self.batches.get_or_create(&BatchLabels { route: route.into(), result }).inc();
    }

    /// ClusterD accepted a fault; `seconds` after its occurrence.
    pub(crate) fn count_accepted(&self, assertion: Assertion, seconds: f64) {
        self.accepted.get_or_create(&assertion.into()).inc();
        if assertion == Assertion::Occur {
            self.delay.observe(seconds);
        }
    }

    pub(crate) fn set_open(&self, tracker: &FaultTracker) {
        let is = |fault: &Fault, name: &str| <&str>::from(&fault.phase) == name;
        for phase in Phase::VARIANTS {
            let count = tracker.faults().filter(|fault| is(fault, phase)).count();
            self.open.get_or_create(&PhaseLabel { phase }).set(number(count));
        }
        for reason in BlockReason::VARIANTS {
            let is_blocked =
                |fault: &&Fault| matches!(&fault.phase, Phase::Blocked(why) if <&str>::from(why) == *reason);
            let count = tracker.faults().filter(is_blocked).count();
            self.blocked.get_or_create(&ReasonLabel { reason }).set(number(count));
        }
    }

    pub(crate) fn set_objections(&self, objections: &[Objection]) {
        for reason in Why::VARIANTS {
            let count = objections.iter().filter(|objection| <&str>::from(&objection.why) == *reason).count();
            self.objections.get_or_create(&ReasonLabel { reason }).set(number(count));
        }
    }

    pub(crate) fn set_persisted(&self, persisted: bool) {
        self.persisted.set(persisted.into());
    }

    pub(crate) fn count_rank_ended(&self, result: &Result<i32, NoRankEnded>) {
        let result = result.as_ref().map_or_else(<&str>::from, |_| "ok");
        self.ranks_ended.get_or_create(&ResultLabel { result }).inc();
    }

    pub(crate) fn count_outcome(&self, outcome: &Outcome, seconds: f64) {
        let outcome = match outcome {
            Outcome::Status(status) => OUTCOMES.into_iter().find(|known| known == status).unwrap_or("other"),
            Outcome::Renamed(_) => "renamed",
            Outcome::Unknown(_) => "unknown",
        };
        self.outcomes.get_or_create(&OutcomeLabel { outcome }).inc();
        if matches!(outcome, "dump-success" | "renamed") {
            self.dump.observe(seconds);
        }
    }
}

impl From<Assertion> for AssertionLabel {
    fn from(assertion: Assertion) -> Self {
        Self { assertion: assertion.to_string() }
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
