//! Tracks whether the device plugin is alive, and which faults it publishes.
//!
//! It writes the ConfigMap at every change, and every five minutes otherwise. As clocks of nodes differ, freshness depends on
//! when the time in the ConfigMap was last observed to change. All times here are milliseconds of a monotonic clock.

use super::{ConfigMapData, DeviceInfo, InvalidDeviceInfo};
use crate::code::Code;
use crate::level::Level;
use crate::source_update::Subject;

/// How long a write counts as fresh: the five minutes until the device plugin's next write, and a minute for retries of
/// the write and of our watch.
pub const FRESH_FOR: u64 = 6 * 60 * 1000;

/// Whether the device plugin reports a fault to ClusterD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginReport {
    /// The device plugin publishes it.
    Reported {
        /// The level, if it is known.
        level: Option<Level>,
        /// When the fault began in milliseconds since 1970, by the device plugin's clock.
        since: Option<i64>,
    },
    /// The device plugin doesn't publish it, though it may soon; or there is no device plugin.
    NotReported,
    /// The ConfigMap is stale or unknown, and may still have the fault.
    Stale,
}

/// The state of the device plugin's ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginState {
    /// Not checked yet.
    Unknown,
    /// Valid and fresh.
    Fresh,
    /// Not written for `age`: the device plugin is down, or can't write.
    Stale {
        /// Milliseconds since the last write.
        age: u64,
    },
    /// There is no ConfigMap. ClusterD silently drops all faults of such a node.
    Missing,
    /// Invalid; ClusterD rejects it too.
    Invalid(InvalidDeviceInfo),
}

/// Tracks the device plugin's ConfigMap of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DevicePluginTracker {
    is_checked: bool,
    last_valid: Option<DeviceInfo>,
    /// When the last write was observed.
    written_at: u64,
    invalid: Option<InvalidDeviceInfo>,
}

impl DevicePluginTracker {
    /// Records that there is no ConfigMap.
    pub fn set_missing(&mut self) {
        *self = Self { is_checked: true, ..Self::default() };
    }

    /// Records the contents of the ConfigMap at `now`.
    ///
    /// The first contents count as fresh, as their age is unknown and doesn't matter to ClusterD. Without further writes they
    /// become stale after [`FRESH_FOR`].
    pub fn update(&mut self, data: ConfigMapData<'_>, now: u64) {
        self.is_checked = true;
        match DeviceInfo::read(data) {
            Ok(info) => {
                let known = self.last_valid.as_ref().map(|info| info.update_time);
                if known != Some(info.update_time) {
                    self.written_at = now;
                }
                self.last_valid = Some(info);
                self.invalid = None;
            }
            // ClusterD keeps the last valid contents too.
            Err(invalid) => self.invalid = Some(invalid),
        }
    }

    /// The last valid contents.
    pub const fn device_info(&self) -> Option<&DeviceInfo> {
        self.last_valid.as_ref()
    }

    pub fn state(&self, now: u64) -> PluginState {
        match (&self.invalid, &self.last_valid) {
            _ if !self.is_checked => PluginState::Unknown,
            (Some(invalid), _) => PluginState::Invalid(invalid.clone()),
            (None, None) => PluginState::Missing,
            (None, Some(_)) if self.is_fresh(now) => PluginState::Fresh,
            (None, Some(_)) => PluginState::Stale { age: now.saturating_sub(self.written_at) },
        }
    }

    /// When the contents become stale without further writes.
    pub fn fresh_until(&self) -> Option<u64> {
        self.last_valid.is_some().then(|| self.written_at.saturating_add(FRESH_FOR))
    }

    /// Whether the device plugin reports a fault to ClusterD. It never reports faults of the node as a whole.
    pub fn report_of(&self, subject: Subject, code: &Code, now: u64) -> PluginReport {
        let Subject::Npu(npu) = subject else { return PluginReport::NotReported };
        let Some(info) = &self.last_valid else {
            return if self.is_checked && self.invalid.is_none() {
                PluginReport::NotReported
            } else {
                PluginReport::Stale
            };
        };
        match info.find(npu, code) {
            _ if !self.is_fresh(now) => PluginReport::Stale,
            Some(found) => PluginReport::Reported { level: found.level, since: found.since },
            None => PluginReport::NotReported,
        }
    }

    fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.written_at) <= FRESH_FOR
    }
}

impl PluginState {
    /// The reason for conditions and Events.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unknown => "DevicePluginUnknown",
            Self::Fresh => "DevicePluginFresh",
            Self::Stale { .. } => "DevicePluginStale",
            Self::Missing => "DevicePluginMissing",
            Self::Invalid(_) => "DevicePluginInvalid",
        }
    }
}
