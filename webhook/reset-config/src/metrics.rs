//! Metrics of the controller.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use strum::{EnumIter, IntoEnumIterator as _, IntoStaticStr};

use crate::job::JobKind;

/// Metrics of the controller. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    enabled: Gauge,
    restarts: Counter,
    watching: Family<KindLabel, Gauge>,
    jobs: Family<StateLabel, Gauge>,
    created: Counter,
    api_errors: Family<OperationLabel, Counter>,
}

/// The state of a job's ConfigMap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum JobState {
    /// Not examined yet, within the grace period, or waiting for an old ConfigMap to be deleted.
    Pending,
    /// ClusterD can use the ConfigMap.
    Ready,
    /// The job needs none: it has finished, or its namespace is opted out.
    Skipped,
    /// ClusterD can't use the ConfigMap, or no ConfigMap can have the required name.
    Unusable,
    /// The API server denies the creation.
    Denied,
}

/// A kind of request to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumIter, IntoStaticStr, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Operation {
    Watch,
    GetConfigMap,
    GetJob,
    GetNamespace,
    CreateConfigMap,
    CreateEvent,
}

/// The kinds of object that the controller watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumIter, IntoStaticStr, strum::Display)]
pub(crate) enum WatchedKind {
    AscendJob,
    VolcanoJob,
    ConfigMap,
}

impl From<JobKind> for WatchedKind {
    fn from(kind: JobKind) -> Self {
        match kind {
            JobKind::AscendJob => Self::AscendJob,
            JobKind::VolcanoJob => Self::VolcanoJob,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

/// Counts one job in a state until dropped.
#[derive(Debug)]
pub(crate) struct JobCount(Gauge);

impl Drop for JobCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Registers the metrics. All series exist from the start, so that alerts can use them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { enabled, restarts, watching, jobs, created, api_errors } = metrics.clone();
        registry.register("enabled", "Whether the reset-config controller is enabled", enabled);
        registry.register("restarts", "Restarts of the controller after it ended", restarts);
        registry.register(
            "watching",
            "Whether all objects of a kind were listed; 0 where the cluster doesn't define the kind",
            watching,
        );
        registry.register("jobs", "Jobs that ask for a dump, by the state of their ConfigMap", jobs);
        registry.register("created", "ConfigMaps created", created);
        registry.register("api_errors", "Failed requests to the API server, by operation", api_errors);
        metrics.reset_watches();
        for state in JobState::iter() {
            metrics.jobs.get_or_create_owned(&StateLabel { state: state.into() });
        }
        for operation in Operation::iter() {
            metrics.api_errors.get_or_create_owned(&OperationLabel { operation: operation.into() });
        }
        metrics
    }

    /// Records that the controller is enabled.
    pub fn set_enabled(&self) {
        self.enabled.set(1);
    }

    /// Records that the controller ended and is restarted.
    pub fn restarted(&self) {
        self.restarts.inc();
    }

    pub(crate) fn reset_watches(&self) {
        for kind in WatchedKind::iter() {
            self.set_watching(kind, false);
        }
    }

    pub(crate) fn set_watching(&self, kind: WatchedKind, is_watching: bool) {
        let gauge = self.watching.get_or_create_owned(&KindLabel { kind: kind.into() });
        gauge.set(is_watching.into());
    }

    pub(crate) fn count_job(&self, state: JobState) -> JobCount {
        let gauge = self.jobs.get_or_create_owned(&StateLabel { state: state.into() });
        gauge.inc();
        JobCount(gauge)
    }

    pub(crate) fn created(&self) {
        self.created.inc();
    }

    pub(crate) fn api_error(&self, operation: Operation) {
        self.api_errors.get_or_create_owned(&OperationLabel { operation: operation.into() }).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text;

    use super::*;

    #[test]
    fn series_that_alerts_use_exist_from_the_start() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(registry.sub_registry_with_prefix("swansong_reset_config"));
        drop(metrics.count_job(JobState::Ready));
        let denied = metrics.count_job(JobState::Denied);
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).expect("text");
        for line in [
            "swansong_reset_config_enabled 0",
            "swansong_reset_config_restarts_total 0",
            r#"swansong_reset_config_watching{kind="ConfigMap"} 0"#,
            r#"swansong_reset_config_jobs{state="ready"} 0"#,
            r#"swansong_reset_config_jobs{state="denied"} 1"#,
            "swansong_reset_config_created_total 0",
            r#"swansong_reset_config_api_errors_total{operation="get_config_map"} 0"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        drop(denied);
    }
}
