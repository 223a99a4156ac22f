//! Whether the device plugin lives, and whether a fault is in what it says.
//!
//! It writes at once when something changes, and every five minutes when nothing does. Clocks of nodes differ, so how
//! fresh a text is isn't told by the time in it, but by when that time was last seen to change: all times here are
//! milliseconds of a clock of ours that never goes back.

use super::{ConfigMapData, DeviceInfo, InvalidDeviceInfo};
use crate::code::Code;
use crate::level::Level;
use crate::source_update::Subject;

/// So long what was published counts as fresh: the five minutes after which the device plugin writes anew, and a minute for
/// a write that has to be repeated and a watch that has to be opened anew.
pub const FRESH_FOR: u64 = 6 * 60 * 1000;

/// Whether a fault reaches ClusterD by the device plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginReport {
    /// It is in what the device plugin published.
    Reported {
        /// At which level, if it is one that is known here. Below the one that ends ranks it ends none.
        level: Option<Level>,
        /// Since when, in milliseconds since 1970 by the device plugin's clock.
        since: Option<i64>,
    },
    /// It isn't, and the device plugin lives, so it may be there soon; or there is no device plugin at all, and it won't.
    NotReported,
    /// Nothing fresh is known. What was published before may be there still.
    Stale,
}

/// Whether somebody publishes for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginState {
    /// Nobody has looked yet.
    Unknown,
    /// Yes.
    Fresh,
    /// Nothing was written for so many milliseconds: the device plugin is down, or can't write.
    Stale {
        /// Milliseconds since the last sign of life.
        age: u64,
    },
    /// There is no ConfigMap. ClusterD drops all faults of such a node in silence, whoever tells them.
    Missing,
    /// What is there can't be taken, by ClusterD neither.
    Invalid(InvalidDeviceInfo),
}

/// What is known of the device plugin of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DevicePluginTracker {
    looked: bool,
    last_good: Option<DeviceInfo>,
    /// When the last sign of life was seen.
    alive: u64,
    invalid: Option<InvalidDeviceInfo>,
}

impl DevicePluginTracker {
    /// There is no ConfigMap.
    pub fn set_missing(&mut self) {
        *self = Self { looked: true, ..Self::default() };
    }

    /// This is in the ConfigMap, at `now`.
    ///
    /// The first text is taken for fresh: how old it is can't be known, and to ClusterD it makes no difference. If nobody
    /// writes any more, that shows after [`FRESH_FOR`].
    pub fn update(&mut self, data: ConfigMapData<'_>, now: u64) {
        self.looked = true;
        match DeviceInfo::read(data) {
            Ok(view) => {
                let known = self.last_good.as_ref().map(|view| view.update_time);
                if known != Some(view.update_time) {
                    self.alive = now;
                }
                self.last_good = Some(view);
                self.invalid = None;
            }
            // ClusterD keeps what it had too.
            Err(invalid) => self.invalid = Some(invalid),
        }
    }

    /// What was last published and could be taken.
    pub const fn device_info(&self) -> Option<&DeviceInfo> {
        self.last_good.as_ref()
    }

    /// Whether somebody publishes for this node.
    pub fn state(&self, now: u64) -> PluginState {
        match (&self.invalid, &self.last_good) {
            _ if !self.looked => PluginState::Unknown,
            (Some(invalid), _) => PluginState::Invalid(invalid.clone()),
            (None, None) => PluginState::Missing,
            (None, Some(_)) if self.is_fresh(now) => PluginState::Fresh,
            (None, Some(_)) => PluginState::Stale { age: now.saturating_sub(self.alive) },
        }
    }

    /// When what is fresh won't be any more, if nothing is written until then.
    pub fn fresh_until(&self) -> Option<u64> {
        self.last_good.is_some().then(|| self.alive.saturating_add(FRESH_FOR))
    }

    /// Whether a fault reaches ClusterD by the device plugin. A fault of the node as a whole never does.
    pub fn report_of(&self, subject: Subject, code: &Code, now: u64) -> PluginReport {
        let Subject::Npu(npu) = subject else { return PluginReport::NotReported };
        let Some(view) = &self.last_good else {
            return if self.looked && self.invalid.is_none() {
                PluginReport::NotReported
            } else {
                PluginReport::Stale
            };
        };
        match view.find(npu, code) {
            _ if !self.is_fresh(now) => PluginReport::Stale,
            Some(found) => PluginReport::Reported { level: found.level, since: found.since },
            None => PluginReport::NotReported,
        }
    }

    fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.alive) <= FRESH_FOR
    }
}

impl PluginState {
    /// A reason in the form that Kubernetes' conditions and Events have.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unknown => "DevicePluginUnknown",
            Self::Fresh => "DevicePluginPublishes",
            Self::Stale { .. } => "DevicePluginStale",
            Self::Missing => "DevicePluginMissing",
            Self::Invalid(_) => "DevicePluginInvalid",
        }
    }

    /// Whether faults of this node reach ClusterD: without a ConfigMap that it takes, it drops all of them.
    pub const fn accepts_faults(&self) -> bool {
        matches!(self, Self::Fresh | Self::Stale { .. })
    }
}
