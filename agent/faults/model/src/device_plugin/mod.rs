//! What the device plugin publishes about this node: the ConfigMap `mindx-dl-deviceinfo-<node>` in kube-system.
//!
//! ClusterD reads it and acts on the faults in it, so a fault that is in it needn't be sent to ClusterD. The writer is `WriteDeviceInfoDataIntoCM` of
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

/// The relevant data of the ConfigMap. `SwitchInfoCfg` is about switches, not NPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConfigMapData<'a> {
    /// The value of `DeviceInfoCfg`.
    pub device_info: Option<&'a str>,
    /// The value of `ManuallySeparateNPU`.
    pub manually_separated: Option<&'a str>,
}

/// The parsed ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The time of the write in seconds since 1970, by the device plugin's clock. Compare it with earlier values only, not with
    /// a clock.
    pub update_time: i64,
    /// The devices with a fault, chip and network separately, in the order of the ConfigMap.
    pub faults: Vec<DeviceFault>,
    pub unhealthy: BTreeSet<u32>,
    pub network_unhealthy: BTreeSet<u32>,
    /// The devices that are separated until an administrator releases them.
    pub manually_separated: BTreeSet<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFault {
    /// Physical id: the N of `/dev/davinciN`, of `Ascend910-N` and of `npu-N`.
    pub npu: u32,
    /// Whether the fault is one of the network (`CardNetworkUnhealthy`) or the device itself (`CardUnhealthy`).
    pub network: bool,
    /// The highest of its levels, if it is known.
    pub level: Option<Level>,
    /// The codes; empty for a manually separated device whose faults have ended.
    pub codes: Vec<PublishedCode>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedCode {
    pub code: Code,
    /// Its own level, if it is published and known.
    pub level: Option<Level>,
    /// When the fault began in milliseconds since 1970, by the device plugin's clock.
    pub since: Option<i64>,
}

/// Why the ConfigMap is invalid. ClusterD rejects it too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeviceInfo {
    /// The key is missing.
    #[error("the ConfigMap has no `DeviceInfoCfg`")]
    NoDeviceInfo,
    /// The value exceeds the size limit of a ConfigMap.
    #[error("`DeviceInfoCfg` has {0} bytes, more than a ConfigMap holds")]
    TooLarge(usize),
    /// The value doesn't parse.
    #[error("`DeviceInfoCfg` can't be read: {0}")]
    Unparsable(String),
    /// The CheckCode is wrong.
    #[error(
        "`DeviceInfoCfg` has CheckCode {stated}, and {computed} would be right: it is damaged, or another program wrote it"
    )]
    CheckCode {
        /// The published CheckCode.
        stated: String,
        computed: String,
    },
    /// The list of faults doesn't parse.
    #[error("`{key}` in `DeviceInfoCfg` can't be read: {problem}")]
    Faults {
        /// The key of the list.
        key: String,
        /// The parser's message.
        problem: String,
    },
}

impl DeviceInfo {
    /// Parses the ConfigMap's data.
    ///
    /// # Errors
    ///
    /// When ClusterD would reject it too.
    pub fn read(data: ConfigMapData<'_>) -> Result<Self, InvalidDeviceInfo> {
        parse::read(data)
    }

    /// A published code of an NPU, with the highest of its levels.
    pub fn find(&self, npu: u32, code: &Code) -> Option<&PublishedCode> {
        let devices = self.faults.iter().filter(|device| device.npu == npu);
        devices
            .flat_map(|device| &device.codes)
            .filter(|known| known.code == *code)
            .max_by_key(|known| known.level)
    }
}

#[cfg(test)]
mod tests;
