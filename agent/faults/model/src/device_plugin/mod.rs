//! What the device plugin publishes of this node: the ConfigMap `mindx-dl-deviceinfo-<node>` in kube-system.
//!
//! ClusterD reads it, and hands on the faults in it. So a fault that is in it needs nobody else to tell it; and when
//! nobody writes it any more, nobody else does. The writer is `WriteDeviceInfoDataIntoCM` of
//! `ascend-device-plugin/pkg/kubeclient/client_server.go`, the types are in `pkg/common/proto.go`.

mod check_code;
mod parse;
mod tracker;

use std::collections::BTreeSet;

pub use self::check_code::check_code;
pub use self::tracker::{DevicePluginTracker, FRESH_FOR, PluginReport, PluginState};
use crate::code::Code;
use crate::level::Level;

/// The namespace of the ConfigMap.
pub const NAMESPACE: &str = "kube-system";

/// The name of the ConfigMap of a node.
pub fn config_map_name(node: &str) -> String {
    format!("mindx-dl-deviceinfo-{node}")
}

/// The data of the ConfigMap, as far as it is looked at. `SwitchInfoCfg` is about switches, not NPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConfigMapData<'a> {
    /// Key `DeviceInfoCfg`.
    pub device_info: Option<&'a str>,
    /// Key `ManuallySeparateNPU`.
    pub manually_separated: Option<&'a str>,
}

/// What was published.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// When, in seconds since 1970 by the device plugin's clock. It is there to be compared with the one before, not with
    /// a clock.
    pub update_time: i64,
    /// The devices with a fault, chip and network apart, in the order in which they are published.
    pub faults: Vec<DeviceFault>,
    /// The devices that are published as unhealthy.
    pub unhealthy: BTreeSet<u32>,
    /// The devices whose network is published as unhealthy.
    pub network_unhealthy: BTreeSet<u32>,
    /// The devices that are separated until somebody allows them again.
    pub manually_separated: BTreeSet<u32>,
}

/// A device that is published with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFault {
    /// Physical id: the N of `/dev/davinciN`, of `Ascend910-N` and of `npu-N`.
    pub npu: u32,
    /// Whether it is its network (`CardNetworkUnhealthy`) or the device itself (`CardUnhealthy`).
    pub network: bool,
    /// The gravest of its levels, if it is one that is known here.
    pub level: Option<Level>,
    /// Its codes. There may be none: a device that is separated by hand has no fault any more.
    pub codes: Vec<PublishedCode>,
}

/// A code that is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedCode {
    /// Which.
    pub code: Code,
    /// Its own level, where that is published and known here.
    pub level: Option<Level>,
    /// Since when, in milliseconds since 1970 by the device plugin's clock.
    pub since: Option<i64>,
}

/// Why what is published can't be taken. ClusterD refuses it too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeviceInfo {
    /// There is no such key.
    #[error("the ConfigMap has no `DeviceInfoCfg`")]
    NoDeviceInfo,
    /// More than a ConfigMap holds.
    #[error("`DeviceInfoCfg` has {0} bytes, more than a ConfigMap holds")]
    TooLarge(usize),
    /// It isn't the JSON that it should be.
    #[error("`DeviceInfoCfg` can't be read: {0}")]
    NotUnderstood(String),
    /// It isn't what its CheckCode says.
    #[error(
        "`DeviceInfoCfg` has CheckCode {stated}, and {computed} would be right: it is damaged, or somebody else wrote it"
    )]
    CheckCode {
        /// As it stands there.
        stated: String,
        /// As it should be.
        computed: String,
    },
    /// The list of faults can't be read.
    #[error("`{key}` in `DeviceInfoCfg` can't be read: {problem}")]
    Faults {
        /// Which list.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl DeviceInfo {
    /// Reads what is published.
    ///
    /// # Errors
    ///
    /// When ClusterD wouldn't take it either.
    pub fn read(data: ConfigMapData<'_>) -> Result<Self, InvalidDeviceInfo> {
        parse::read(data)
    }

    /// A code of an NPU, if it is published, with the gravest level under which it is.
    pub fn find(&self, npu: u32, code: &Code) -> Option<&PublishedCode> {
        let of_npu = self.faults.iter().filter(|faulty| faulty.npu == npu);
        of_npu
            .flat_map(|faulty| &faulty.codes)
            .filter(|known| known.code == *code)
            .max_by_key(|known| known.level)
    }
}

#[cfg(test)]
mod tests;
