//! The agent's metrics. Labels have few values, all known at compile time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use strum::VariantArray as _;

use crate::finding::{Ready, Report, Status};
use crate::preload::{Outcome, PodVerdict};
use crate::readiness::WriteCause;
use crate::relay::Metrics as RelayMetrics;
use swansong_runtime::supervisor::Tasks;

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Numbers<const N: usize> = Family<Labels<N>, Gauge<i64, AtomicI64>>;
type Seconds = Gauge<f64, AtomicU64>;

const OUTCOMES: [(Outcome, &str); 4] = [
    (Outcome::Live, "live"),
    (Outcome::PartlyLive, "partly_live"),
    (Outcome::NotLive, "not_live"),
    (Outcome::Unknown, "unknown"),
];

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Those of the relay of faults.
    pub(crate) relay: Arc<RelayMetrics>,
    ready: Numbers<1>,
    checks: Numbers<2>,
    check_duration: Seconds,
    writes: Family<Labels<2>, Counter>,
    api_failures: Family<Labels<1>, Counter>,
    events: Family<Labels<1>, Counter>,
    containers: Numbers<1>,
    scan_duration: Seconds,
}

impl Metrics {
    /// Metrics of an agent that has done nothing yet.
    pub(crate) fn new(tasks: &Tasks) -> Self {
        let mut registry = Registry::with_prefix("swansong_agent");
        registry.register("build", "The program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let metrics = Self {
            relay: Arc::new(RelayMetrics::new(&mut registry)),
            ready: Family::default(),
            checks: Family::default(),
            check_duration: Seconds::default(),
            writes: Family::default(),
            api_failures: Family::default(),
            events: Family::default(),
            containers: Family::default(),
            scan_duration: Seconds::default(),
            registry: Registry::default(),
        };
        let r = &mut registry;
        r.register("ready", "1 for what stands of the node, after all holds", metrics.ready.clone());
        r.register("check", "1 for what each check said last", metrics.checks.clone());
        r.register(
            "check_duration_seconds",
            "How long the last round of checks took",
            metrics.check_duration.clone(),
        );
        r.register("node_writes", "Writes to the Node, by cause and result", metrics.writes.clone());
        r.register(
            "api_failures",
            "Requests that failed, by what they were about",
            metrics.api_failures.clone(),
        );
        r.register("events", "Events told, and dropped since too many waited", metrics.events.clone());
        r.register(
            "preload_containers",
            "Containers into which libraries are preloaded, by how they stand",
            metrics.containers.clone(),
        );
        r.register(
            "preload_scan_duration_seconds",
            "How long the last look at the processes took",
            metrics.scan_duration.clone(),
        );
        tasks.register(r);
        metrics.begin();
        Self { registry, ..metrics }
    }

    /// What is known beforehand is told from the beginning, so that it can be alerted on.
    fn begin(&self) {
        self.stands(None);
        for (_, name) in OUTCOMES {
            self.containers.get_or_create(&[("outcome", name)]).set(0);
        }
        for result in ["told", "dropped"] {
            let _ = self.events.get_or_create(&[("result", result)]);
        }
        for about in ["node", "taint", "events", "relayed"] {
            let _ = self.api_failures.get_or_create(&[("about", about)]);
        }
        for cause in WriteCause::VARIANTS {
            let _ = self.writes.get_or_create(&[("cause", cause.as_str()), ("result", "ok")]);
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String doesn't fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }

    pub(crate) fn stands(&self, standing: Option<Ready>) {
        for ready in [Ready::True, Ready::False, Ready::Unknown] {
            let shown = standing.unwrap_or(Ready::Unknown) == ready;
            self.ready.get_or_create(&[("status", ready.as_str())]).set(shown.into());
        }
    }

    pub(crate) fn checked(&self, report: &Report, took: Duration) {
        for check in &report.checks {
            for status in [Status::Pass, Status::Fail, Status::Unknown] {
                let labels = [("check", check.name.as_str()), ("status", status.as_str())];
                self.checks.get_or_create(&labels).set((check.finding.status() == status).into());
            }
        }
        self.check_duration.set(took.as_secs_f64());
    }

    pub(crate) fn wrote(&self, cause: WriteCause, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.writes.get_or_create(&[("cause", cause.as_str()), ("result", result)]).inc();
        if !ok {
            self.api_failed("node");
        }
    }

    pub(crate) fn tainted(&self, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.writes.get_or_create(&[("cause", "taint"), ("result", result)]).inc();
        if !ok {
            self.api_failed("taint");
        }
    }

    pub(crate) fn api_failed(&self, about: &'static str) {
        self.api_failures.get_or_create(&[("about", about)]).inc();
    }

    pub(crate) fn event_told(&self) {
        self.events.get_or_create(&[("result", "told")]).inc();
    }

    pub(crate) fn event_dropped(&self) {
        self.events.get_or_create(&[("result", "dropped")]).inc();
    }

    pub(crate) fn scanned(&self, pods: &[PodVerdict], took: Duration) {
        for (outcome, name) in OUTCOMES {
            let containers = pods.iter().flat_map(|pod| &pod.containers);
            let count = containers.filter(|container| container.verdict.outcome == outcome).count();
            self.containers.get_or_create(&[("outcome", name)]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.scan_duration.set(took.as_secs_f64());
    }
}
