//! The agent's metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use strum::VariantArray as _;
use swansong_api::node::RehearsalResult;
use swansong_faults::Metrics as FaultMetrics;
use swansong_runtime::config::ConfigMetrics;
use swansong_runtime::events::EventMetrics;
use swansong_runtime::supervisor::Tasks;
use swansong_trainer as trainer;

use crate::finding::{Ready, Report, Status};
use crate::preload::{ContainerVerdict, Outcome, PodVerdict};
use crate::readiness::WriteCause;
use crate::trainer::TrainerVerdict;

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Gauges<const N: usize> = Family<Labels<N>, Gauge<i64, AtomicI64>>;
type Seconds = Gauge<f64, AtomicU64>;

/// The metrics of the tasks in [`run`](crate::run), and the registry of all.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Metrics of the fault pipeline.
    pub(crate) faults: Arc<FaultMetrics>,
    pub(crate) events: EventMetrics,
    pub(crate) config: ConfigMetrics,
    ready: Gauges<1>,
    checks: Gauges<2>,
    check_duration: Seconds,
    writes: Family<Labels<2>, Counter>,
    api_errors: Family<Labels<1>, Counter>,
    containers: Gauges<1>,
    hooks: Gauges<1>,
    without_environment: Gauge<i64, AtomicI64>,
    trainers: Gauges<1>,
    scan_duration: Seconds,
    rehearsals: Gauges<1>,
}

impl Metrics {
    pub(crate) fn new(tasks: &Tasks) -> Self {
        let mut registry = Registry::with_prefix("swansong_agent");
        let r = &mut registry;
        r.register("build", "The program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let faults = Arc::new(FaultMetrics::new(r));
        let events = EventMetrics::default();
        events.register(r);
        let config = ConfigMetrics::default();
        config.register(r);
        let metrics = Self {
            faults,
            events,
            config,
            ready: add(r, "ready", "1 for the status that the Node should show"),
            checks: add(r, "check", "1 for the status of each check in the last round"),
            check_duration: add(r, "check_duration_seconds", "Duration of the last round of checks"),
            writes: add(r, "node_writes", "Writes to the Node, by cause and result"),
            api_errors: add(r, "api_errors", "Failed writes to the Node, by their subject"),
            containers: add(r, "preload_containers", "Injected containers, by the state of their preload"),
            hooks: add(r, "launcher_hooks", "Containers with a launcher hook, by its state"),
            without_environment: add(
                r,
                "containers_without_dump_environment",
                "Containers that ask for a dump and whose processes don't know where MindIO's controller is",
            ),
            trainers: add(
                r,
                "trainer_containers",
                "Containers by whether their training program can save a dying checkpoint",
            ),
            scan_duration: add(r, "preload_scan_duration_seconds", "Duration of the last scan of processes"),
            rehearsals: add(
                r,
                "rehearsal_timestamp_seconds",
                "When a rehearsal on request last ended with each status; 0 if none did",
            ),
            registry: {
                tasks.register(r);
                registry
            },
        };
        metrics.create_series();
        metrics
    }

    /// Alerts need the series before the first increment.
    fn create_series(&self) {
        self.set_ready(None);
        self.record_scan(&[], Duration::ZERO);
        for status in Status::VARIANTS {
            let _ = self.rehearsals.get_or_create(&[("status", status.as_str())]);
        }
        for subject in ["condition", "taint", "faults_condition"] {
            let _ = self.api_errors.get_or_create(&[("subject", subject)]);
        }
        for cause in WriteCause::VARIANTS {
            let _ = self.writes.get_or_create(&[("cause", cause.as_str()), ("result", "ok")]);
        }
    }

    /// The Prometheus text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }

    pub(crate) fn set_ready(&self, desired: Option<Ready>) {
        for status in Ready::VARIANTS {
            let is_desired = desired.unwrap_or(Ready::Unknown) == *status;
            self.ready.get_or_create(&[("status", status.as_str())]).set(is_desired.into());
        }
    }

    pub(crate) fn record_checks(&self, report: &Report, duration: Duration) {
        for check in &report.checks {
            for status in Status::VARIANTS {
                let labels = [("check", check.name.as_str()), ("status", status.as_str())];
                self.checks.get_or_create(&labels).set((check.finding.status() == *status).into());
            }
        }
        self.check_duration.set(duration.as_secs_f64());
    }

    pub(crate) fn record_update(&self, cause: WriteCause, ok: bool) {
        self.record_write(cause.as_str(), "condition", ok);
    }

    pub(crate) fn record_taint(&self, ok: bool) {
        self.record_write("taint", "taint", ok);
    }

    fn record_write(&self, cause: &'static str, subject: &'static str, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.writes.get_or_create(&[("cause", cause), ("result", result)]).inc();
        if !ok {
            self.record_api_error(subject);
        }
    }

    pub(crate) fn record_api_error(&self, subject: &'static str) {
        self.api_errors.get_or_create(&[("subject", subject)]).inc();
    }

    pub(crate) fn record_rehearsal(&self, result: &RehearsalResult) {
        if let Some(status) = Status::VARIANTS.iter().find(|status| status.as_str() == result.status) {
            let at = i64::try_from(result.at / 1000).unwrap_or(i64::MAX);
            self.rehearsals.get_or_create(&[("status", status.as_str())]).set(at);
        }
    }

    pub(crate) fn record_scan(&self, pods: &[PodVerdict], duration: Duration) {
        for outcome in Outcome::VARIANTS {
            let count = count(pods, |container| {
                container.verdict.as_ref().is_some_and(|verdict| verdict.outcome == *outcome)
            });
            self.containers.get_or_create(&[("outcome", outcome.as_str())]).set(count);
        }
        for (state, is_active) in [("active", Some(true)), ("not_active", Some(false)), ("unknown", None)] {
            let count = count(pods, |container| {
                container.launcher_hook.as_ref().is_some_and(|hook| hook.is_active == is_active)
            });
            self.hooks.get_or_create(&[("state", state)]).set(count);
        }
        self.without_environment.set(count(pods, |container| !container.missing_environment.is_empty()));
        for outcome in [trainer::Verdict::Can, trainer::Verdict::Cannot, trainer::Verdict::Unknown] {
            let count =
                count(pods, |container| container.trainer.as_ref().is_some_and(|it| it.outcome == outcome));
            self.trainers.get_or_create(&[("verdict", TrainerVerdict::label(outcome))]).set(count);
        }
        self.scan_duration.set(duration.as_secs_f64());
    }
}

fn count(pods: &[PodVerdict], is_counted: impl Fn(&ContainerVerdict) -> bool) -> i64 {
    let count = pods.iter().flat_map(|pod| &pod.containers).filter(|container| is_counted(container)).count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
