//! Metrics of the controller.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use strum::{Display, EnumIter, IntoEnumIterator as _, IntoStaticStr};
use swansong_runtime::metrics::registered;

type Label = [(&'static str, &'static str); 1];

/// The kinds of object that the controller watches.
const WATCHED_KINDS: [&str; 3] = ["AscendJob", "VolcanoJob", CONFIG_MAP];

pub(crate) const CONFIG_MAP: &str = "ConfigMap";

/// Metrics of the controller. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Whether the controller is enabled.
    pub enabled: Gauge,
    /// Restarts of the controller after it ended.
    pub restarts: Counter,
    watching: Family<Label, Gauge>,
    jobs: Family<Label, Gauge>,
    pub(crate) created: Counter,
    api_errors: Family<Label, Counter>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumIter, IntoStaticStr, Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Operation {
    Watch,
    GetConfigMap,
    GetJob,
    GetNamespace,
    CreateConfigMap,
    CreateEvent,
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
        let metrics = Self {
            enabled: registered(registry, "enabled", "Whether the reset-config controller is enabled"),
            restarts: registered(registry, "restarts", "Restarts of the controller after it ended"),
            watching: registered(
                registry,
                "watching",
                "Whether all objects of a kind were listed; 0 where the cluster doesn't define the kind",
            ),
            jobs: registered(registry, "jobs", "Jobs that ask for a dump, by the state of their ConfigMap"),
            created: registered(registry, "created", "ConfigMaps created"),
            api_errors: registered(registry, "api_errors", "Failed requests to the API server, by operation"),
        };
        metrics.reset_watches();
        for state in JobState::iter() {
            drop(metrics.count_job(state));
        }
        for operation in Operation::iter() {
            metrics.api_errors.get_or_create_owned(&[("operation", operation.into())]);
        }
        metrics
    }

    pub(crate) fn reset_watches(&self) {
        for kind in WATCHED_KINDS {
            self.set_watching(kind, false);
        }
    }

    pub(crate) fn set_watching(&self, kind: &'static str, is_watching: bool) {
        self.watching.get_or_create(&[("kind", kind)]).set(is_watching.into());
    }

    pub(crate) fn count_job(&self, state: JobState) -> JobCount {
        let gauge = self.jobs.get_or_create_owned(&[("state", state.into())]);
        gauge.inc();
        JobCount(gauge)
    }

    pub(crate) fn api_error(&self, operation: Operation) {
        self.api_errors.get_or_create(&[("operation", operation.into())]).inc();
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
