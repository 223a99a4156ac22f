//! Checks of the host, each a small pure function of a host root.
//!
//! None of them asks the network, the clock or this process: what comes from there is handed in as
//! [`Surroundings`].

mod clock;
mod clusterd;
pub(crate) mod devices;
pub(crate) mod driver;
mod libraries;
mod mounts;
mod port_owners;
mod ports;
mod product;
mod programs;
mod surroundings;
mod trust;
mod version;

use serde::{Serialize, Serializer};

pub use self::clock::Reference;
pub use self::clusterd::{Dialled, dial};
pub use self::libraries::{Loadable, loadable};
pub use self::port_owners::PortOwners;
pub use self::product::{Demand, Family, NoSuchFamily, Product, Profile, pci_ids};
pub use self::surroundings::Surroundings;
pub use self::trust::Trust;
pub use self::version::{NotAVersion, Version};
use crate::config::Config;
use crate::reason::Reason;
use crate::report::{Check, Finding};
use crate::root::{HostRoot, LookError};

macro_rules! names {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The name of a check.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum CheckName { $($(#[doc = $doc])+ $name,)+ }

        impl CheckName {
            /// Every check, in the order of reports.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name in reports and metric labels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// What it looks at.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

names! {
    /// The NPU manager's device node.
    DeviceManager = "device-manager",
    /// The device node of the channel between host and device.
    DeviceHdc = "device-hdc",
    /// The device node of shared virtual memory.
    DeviceSvm = "device-svm",
    /// The device nodes of the NPUs: how many, and whether a loaded driver owns them.
    NpuDevices = "npu-devices",
    /// Whether the driver has registered its devices.
    DriverLoaded = "driver-loaded",
    /// The version of the driver.
    DriverVersion = "driver-version",
    /// The libraries of the driver.
    DriverLibs = "driver-libs",
    /// The command npu-smi.
    NpuSmi = "npu-smi",
    /// libmspti.so on the host, when configured.
    CannMspti = "cann-mspti",
    /// libtaskd.so on the host, when configured.
    TaskdLib = "taskd-lib",
    /// Further paths that configuration demands.
    ExtraPaths = "extra-paths",
    /// The ports that hostNetwork jobs need.
    Ports = "ports",
    /// Whether ClusterD can be reached.
    Clusterd = "clusterd",
    /// The clock.
    Clock = "clock",
}

impl Serialize for CheckName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The product family of the node: the configured one, else the detected one.
pub fn product(root: &HostRoot, config: &Config) -> Product {
    config.family.map_or_else(|| Product::detect(root, &config.pci_ids), Product::set)
}

/// Runs every check that applies, in the order of [`CheckName::ALL`].
pub fn run(root: &HostRoot, config: &Config, surroundings: &Surroundings) -> Vec<Check> {
    let product = product(root, config);
    let driver = driver::path(root, config);
    CheckName::ALL
        .iter()
        .filter_map(|&name| {
            let finding = match name {
                CheckName::DeviceManager => Some(devices::manager(root, &product)),
                CheckName::DeviceHdc => Some(devices::hdc(root, &product)),
                CheckName::DeviceSvm => Some(devices::svm(root, &product)),
                CheckName::NpuDevices => {
                    Some(devices::npus(root, config.npus.or(surroundings.expected_npus)))
                }
                CheckName::DriverLoaded => Some(driver::loaded(root)),
                CheckName::DriverVersion => {
                    Some(driver::version(root, &driver, config.driver.minimum_version.as_ref()))
                }
                CheckName::DriverLibs => {
                    let stale = mounts::stale(&driver, &surroundings.dead_mounts);
                    Some(stale.unwrap_or_else(|| {
                        libraries::driver(root, &driver, config, &product, surroundings.machine)
                    }))
                }
                CheckName::NpuSmi => Some(programs::npu_smi(root, &config.npu_smi)),
                CheckName::CannMspti => config
                    .host_libmspti
                    .as_deref()
                    .map(|path| libraries::mspti(root, path, config.driver.trust, surroundings.machine)),
                CheckName::TaskdLib => config
                    .host_libtaskd
                    .as_deref()
                    .map(|path| libraries::taskd(root, path, surroundings.machine)),
                CheckName::ExtraPaths => programs::extra_paths(root, &config.paths),
                CheckName::Ports => Some(ports::check(root, &config.ports, &surroundings.port_owners)),
                CheckName::Clusterd => surroundings
                    .clusterd
                    .as_ref()
                    .map(|dialled| clusterd::judge(&config.clusterd.address, dialled)),
                CheckName::Clock => Some(clock::judge(
                    surroundings.now,
                    clock::driver_installed(root, &driver),
                    surroundings.reference.as_ref(),
                    config.max_skew,
                )),
            };
            let advisory = config.advisory.contains(&name);
            finding.map(|finding| Check { name, finding, advisory })
        })
        .collect()
}

/// What to say of `path` when it can't be looked at. `missing` and `advice` are for the case that it isn't there,
/// which counts only if the part of the host's file system that it belongs to is there.
fn unseen(root: &HostRoot, path: &str, error: &LookError, missing: Reason, advice: &str) -> Finding {
    match error {
        LookError::Missing => {
            let top = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            let mounted = root.list(format!("/{top}")).is_ok_and(|names| !names.is_empty());
            if mounted {
                let link = root.link(path).map(|to| format!(" a link to {}, which is", to.display()));
                let message = format!("{path} is{} missing; {advice}", link.unwrap_or_default());
                Finding::at(path, missing, message)
            } else {
                let message = format!("/{top} of the host isn't mounted below the host root; mount it there");
                Finding::at(path, Reason::HostPathNotMounted, message)
            }
        }
        LookError::Loop => {
            let message = format!("the links at {path} go round in circles; {advice}");
            Finding::at(path, Reason::LinkLoop, message)
        }
        error => {
            let message = format!("{path} can't be looked at: {error}; let the agent read it");
            Finding::at(path, Reason::NotReadable, message)
        }
    }
}
