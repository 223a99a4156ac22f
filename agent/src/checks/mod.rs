//! Checks of the host: pure functions of a host root, [`Settings`] and a [`CheckContext`].

mod clock;
mod clusterd;
mod context;
mod dependencies;
mod devices;
mod driver;
mod files;
mod libraries;
mod mounts;
mod port_owners;
mod ports;
mod product;
mod settings;
mod trust;
mod version;

pub use self::clock::ReferenceClock;
pub use self::clusterd::{DialOutcome, dial};
pub use self::context::CheckContext;
use self::devices::ExpectedNpus;
pub use self::devices::{hdc, manager, npu, npu_numbers, svm};
pub use self::driver::{loaded, majors};
pub use self::libraries::{LoadableLibrary, loadable_library};
pub use self::port_owners::PortOwners;
pub use self::product::{Family, Product, Profile, Requirement, pci_ids};
pub use self::settings::{ClusterdSettings, DriverSettings, Settings};
pub use self::trust::Trust;
pub use self::version::{InvalidVersion, Version};
use crate::finding::{Check, CheckName, Finding, Reason};
use crate::host::{HostRoot, PathError};
use strum::VariantArray as _;

/// The configured product family, else the detected one.
pub fn product(root: &HostRoot, settings: &Settings) -> Product {
    settings.family.map_or_else(|| Product::detect(root, &settings.pci_ids), Product::configured)
}

/// Runs all checks that apply, in the order of [`CheckName`].
pub fn run(root: &HostRoot, settings: &Settings, context: &CheckContext) -> Vec<Check> {
    let host = Host {
        root,
        settings,
        context,
        product: product(root, settings),
        driver: driver::path(root, settings.driver.path.as_deref()),
    };
    let findings = CheckName::VARIANTS.iter().filter_map(|&name| Some((name, host.check(name)?)));
    let checks = findings.map(|(name, finding)| {
        // Containers have their own file.
        let advisory = settings.advisory.contains(&name) || name == CheckName::LdSoPreload;
        Check { name, finding, advisory }
    });
    checks.collect()
}

struct Host<'a> {
    root: &'a HostRoot,
    settings: &'a Settings,
    context: &'a CheckContext,
    product: Product,
    /// The driver's folder.
    driver: String,
}

impl Host<'_> {
    /// Runs a check; `None` if it doesn't apply.
    fn check(&self, name: CheckName) -> Option<Finding> {
        let Self { root, settings, context, product, driver } = self;
        Some(match name {
            CheckName::DeviceManager => manager(root, product),
            CheckName::DeviceHdc => hdc(root, product),
            CheckName::DeviceSvm => svm(root, product),
            CheckName::NpuDevices => {
                let expected = ExpectedNpus { configured: settings.npus, capacity: context.expected_npus };
                devices::npus(root, expected, &settings.pci_ids)
            }
            CheckName::DriverLoaded => loaded(root),
            CheckName::DriverVersion => {
                driver::version(root, driver, settings.driver.minimum_version.as_ref())
            }
            CheckName::DriverLibs => mounts::check(driver, &context.stale_mounts)
                .unwrap_or_else(|| libraries::driver(root, driver, settings, product, context.machine)),
            CheckName::NpuSmi => files::npu_smi(root, &settings.npu_smi),
            CheckName::CannMspti => {
                let path = settings.host_libmspti.as_deref()?;
                libraries::mspti(root, path, settings.driver.trust, context.machine)
            }
            CheckName::TaskdLib => {
                libraries::taskd(root, settings.host_libtaskd.as_deref()?, context.machine)
            }
            CheckName::LdSoPreload => files::ld_so_preload(root)?,
            CheckName::ExtraPaths => files::extra_paths(root, &settings.paths)?,
            CheckName::Ports if settings.ports.is_empty() => return None,
            CheckName::Ports => ports::check(root, &settings.ports, &context.port_owners),
            CheckName::Clusterd => clusterd::check(&settings.clusterd.address, context.clusterd.as_ref()?),
            CheckName::Clock => clock::check(
                context.now,
                clock::driver_installed(root, driver),
                context.reference.as_ref(),
                settings.max_skew,
            ),
        })
    }
}

/// The finding about a path that can't be opened. `missing` and `advice` apply if the path doesn't exist although its
/// top-level folder is mounted below the host root.
fn path_finding(root: &HostRoot, path: &str, error: &PathError, missing: Reason, advice: &str) -> Finding {
    match error {
        PathError::Missing => {
            let top = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            if root.list(format!("/{top}")).is_ok_and(|names| !names.is_empty()) {
                let link = root.read_link(path).map(|to| format!(" a link to {}, which is", to.display()));
                let message = format!("{path} is{} missing; {advice}", link.unwrap_or_default());
                Finding::at(path, missing, message)
            } else {
                let message = format!("/{top} of the host isn't mounted below the host root; mount it there");
                Finding::at(path, Reason::HostPathNotMounted, message)
            }
        }
        PathError::Loop => {
            Finding::at(path, Reason::LinkLoop, format!("the links at {path} form a loop; {advice}"))
        }
        error => {
            let message = format!("{path} can't be read: {error}; let the agent read it");
            Finding::at(path, Reason::NotReadable, message)
        }
    }
}
