//! The Pods of this node that use NPUs.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swansong_fault_model::Subject;
use swansong_fault_model::rank_process::PodRanks;

/// The times in seconds that MindIO lets ranks save, and the one without a setting.
const SAVE_LIMITS: RangeInclusive<u64> = 30..=1800;
const DEFAULT_SAVE_LIMIT: Duration = Duration::from_mins(3);

/// A Pod that uses NPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NpuPod {
    /// What names it.
    pub reference: PodReference,
    /// Whether its phase is Running.
    pub is_running: bool,
    /// Physical ids of the device plugin's configuration, in the order of ranks; `None` if there is none that can be read.
    pub configured: Option<Vec<u32>>,
    /// Physical ids of the other annotations.
    pub granted: Vec<u32>,
    /// Its rank in the job.
    pub rank: Option<u32>,
    /// How it saves a dying checkpoint.
    pub dump: DumpSettings,
}

/// What names a Pod and its job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodReference {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The training container.
    pub container: String,
    /// The name of its PodGroup.
    pub group: Option<String>,
    /// The job that owns it.
    pub job: Option<Owner>,
}

/// How a Pod saves a dying checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpSettings {
    /// The runtime's id of the training container; `None` until it is started.
    pub container_id: Option<String>,
    /// Whether it asks for the rank on a lost device to be ended at once.
    pub is_fast: bool,
    /// Whether it carries the launcher hook.
    pub has_hook: bool,
    /// The ports of MindIO's controller.
    pub ports: Vec<u16>,
    /// How long its ranks may save.
    pub save_limit: Duration,
}

/// A job, as an owner reference names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// Its group and version.
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

impl fmt::Display for PodReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl NpuPod {
    /// Whether it uses the device that `subject` is; every Pod uses the node.
    pub fn uses(&self, subject: Subject) -> bool {
        match subject {
            Subject::Node => true,
            Subject::Npu(id) => {
                self.granted.contains(&id) || self.configured.as_ref().is_some_and(|ids| ids.contains(&id))
            }
        }
    }

    /// What its annotations say of its ranks.
    pub fn ranks(&self) -> PodRanks<'_> {
        PodRanks { devices: self.configured.as_deref().unwrap_or_default(), rank: self.rank }
    }
}

impl DumpSettings {
    /// The limit for saving that `TTP_NORMAL_ACTION_TIME_LIMIT` sets. How MindIO takes another value isn't documented,
    /// so the longest one is waited for.
    pub fn save_limit_of(seconds: Option<&str>) -> Duration {
        let Some(seconds) = seconds else { return DEFAULT_SAVE_LIMIT };
        let seconds = seconds.trim().parse().ok().filter(|seconds| SAVE_LIMITS.contains(seconds));
        Duration::from_secs(seconds.unwrap_or(*SAVE_LIMITS.end()))
    }
}

impl Default for DumpSettings {
    fn default() -> Self {
        let (is_fast, has_hook) = (false, false);
        Self { container_id: None, is_fast, has_hook, ports: Vec::new(), save_limit: DEFAULT_SAVE_LIMIT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_that_mindio_may_not_take_counts_as_the_longest() {
        for (value, seconds) in [
            (None, 180),
            (Some("30"), 30),
            (Some(" 600 "), 600),
            (Some("1800"), 1800),
            (Some("29"), 1800),
            (Some("1801"), 1800),
            (Some("-1"), 1800),
            (Some("$(LIMIT)"), 1800),
            (Some(""), 1800),
        ] {
            assert_eq!(DumpSettings::save_limit_of(value).as_secs(), seconds, "{value:?}");
        }
    }
}
