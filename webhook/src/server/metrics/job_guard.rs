//! What is told of the job guard, which runs beside the server.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Labels, counter, family, gauge};

/// Standings of jobs, in the order of [`JobGuardMetrics::stand`].
const STANDINGS: [&str; 5] = ["pending", "sound", "nothing", "unusable", "refused"];

/// What requests are about.
const ABOUT: [&str; 4] = ["job", "namespace", "config_map", "event"];

/// What is watched.
const WATCHED: [&str; 3] = ["AscendJob", "VolcanoJob", "ConfigMap"];

type Gauges = Family<Labels<1>, Gauge<i64, AtomicI64>>;

/// The job guard's part of the [`Metrics`](super::Metrics).
#[derive(Debug)]
pub struct JobGuardMetrics {
    enabled: Gauge<i64, AtomicI64>,
    restarts: Counter,
    watching: Gauges,
    jobs: Gauges,
    created: Counter,
    failures: Family<Labels<1>, Counter>,
}

impl JobGuardMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            enabled: gauge(registry, "job_guard_enabled", "Whether the job guard is to run"),
            restarts: counter(
                registry,
                "job_guard_restarts",
                "Times the job guard ended and was started anew",
            ),
            watching: gauges(
                registry,
                "job_guard_watching",
                "Whether the job guard knows all objects of a kind; 0 also where the cluster doesn't know it",
            ),
            jobs: gauges(
                registry,
                "job_guard_jobs",
                "Jobs that ask for a dump, by how their reset ConfigMap stands",
            ),
            created: counter(registry, "job_guard_config_maps_created", "Reset ConfigMaps created"),
            failures: family(
                registry,
                "job_guard_api_failures",
                "Requests of the job guard that failed, by what they were about",
            ),
        };
        for about in ABOUT {
            metrics.failures.get_or_create_owned(&[("about", about)]);
        }
        metrics.reset();
        metrics
    }

    /// The guard is to run, or not.
    pub fn enable(&self, enabled: bool) {
        self.enabled.set(enabled.into());
    }

    /// It has ended, and knows nothing any more.
    pub fn ended(&self) {
        self.restarts.inc();
        self.reset();
    }

    /// It begins anew, and knows nothing yet.
    pub fn reset(&self) {
        for what in WATCHED {
            self.watch(what, false);
        }
        self.stand([0; 5]);
    }

    /// Objects of a kind are known from now on, or not any more.
    pub fn watch(&self, what: &'static str, known: bool) {
        self.watching.get_or_create_owned(&[("kind", what)]).set(known.into());
    }

    /// How many jobs are pending, sound, without need, with an unusable ConfigMap, or refused one.
    pub fn stand(&self, jobs: [u64; 5]) {
        for (standing, count) in STANDINGS.into_iter().zip(jobs) {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.jobs.get_or_create_owned(&[("standing", standing)]).set(count);
        }
    }

    /// A ConfigMap was created.
    pub fn created(&self) {
        self.created.inc();
    }

    /// A request failed.
    pub fn failed(&self, about: &'static str) {
        self.failures.get_or_create_owned(&[("about", about)]).inc();
    }
}

fn gauges(registry: &mut Registry, name: &str, help: &str) -> Gauges {
    let gauges = Gauges::default();
    registry.register(name, help, gauges.clone());
    gauges
}
