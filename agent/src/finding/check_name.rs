//! Names of checks.

use serde::Serialize;

/// The name of a check. The order is that of reports.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum CheckName {
    /// The device node of the NPU manager.
    DeviceManager,
    /// The device node of the channel between host and device.
    DeviceHdc,
    /// The device node of shared virtual memory.
    DeviceSvm,
    /// The device nodes of the NPUs: their number, and whether a loaded driver owns them.
    NpuDevices,
    /// Whether the driver has registered its devices.
    DriverLoaded,
    /// The version of the driver.
    DriverVersion,
    /// The libraries of the driver.
    DriverLibs,
    /// The command npu-smi.
    NpuSmi,
    /// libmspti.so on the host, when configured.
    CannMspti,
    /// libtaskd.so on the host, when configured.
    TaskdLib,
    /// The host's /etc/ld.so.preload, if there is one; always advisory.
    LdSoPreload,
    /// Further paths that the configuration requires.
    ExtraPaths,
    /// The ports that hostNetwork jobs need.
    Ports,
    /// Whether ClusterD is reachable.
    Clusterd,
    /// Whether the clock shows a plausible time.
    Clock,
}

impl CheckName {
    /// The name in reports and metric labels.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
