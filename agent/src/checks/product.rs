//! Product families: what a node of each family has, and how a family is detected.
//!
//! Device nodes: `ascend-docker-runtime/runtime/process/process.go`, `ascend-common/cdi/devnode.go` and
//! `ascend-device-plugin/pkg/common/common.go`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::host::HostRoot;

/// Huawei's PCI vendor id, as in `npu-smi info -t board` (`ascend-faultdiag`'s sample of it).
const VENDOR: &str = "0x19e5";

/// A family of Ascend products with equal hosts.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(ascii_case_insensitive)]
pub enum Family {
    /// Ascend 310 cards.
    #[strum(serialize = "310")]
    Ascend310,
    /// Ascend 310P cards (Atlas 300I Pro, 300V, 300I Duo).
    #[strum(serialize = "310P")]
    Ascend310P,
    /// Ascend 310B (Atlas 200I A2, 500 A2).
    #[strum(serialize = "310B")]
    Ascend310B,
    /// Atlas 200I SoC A1.
    #[strum(serialize = "200I-SoC-A1")]
    Atlas200ISoc,
    /// Atlas 200 Model 3000.
    #[strum(serialize = "200-3000")]
    Atlas200,
    /// The first training generation, 910A.
    #[strum(serialize = "910A")]
    Ascend910A,
    /// 910B, the A2 generation.
    A2,
    /// 910_93, the A3 generation.
    A3,
    /// Ascend950, the A5 generation.
    A5,
}

/// What the hosts of a family have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// `/dev/devmm_svm`, shared virtual memory.
    pub svm: bool,
    /// `/dev/hisi_hdc`, the channel between host and device.
    pub hdc: bool,
    /// The folders `common` and `driver` of `driver/lib64`. Products whose system runs on the chip itself don't have
    /// them; there libdcmi.so is in `/usr/lib64` (`ascend-docker-runtime/build/scripts/base.list_A200IA2`).
    pub library_folders: bool,
    /// Paths of the manager's device node by precedence (310B: `process.go`).
    pub managers: &'static [&'static str],
}

impl Family {
    /// The name in configuration and messages.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// What its hosts have.
    pub const fn profile(self) -> Profile {
        const CARD: Profile =
            Profile { svm: true, hdc: true, library_folders: true, managers: &["/dev/davinci_manager"] };
        match self {
            Self::Ascend310 | Self::Ascend310P | Self::Ascend910A | Self::A2 | Self::A3 => CARD,
            Self::A5 => Profile { svm: false, ..CARD },
            Self::Atlas200ISoc | Self::Atlas200 => {
                Profile { svm: false, hdc: false, library_folders: false, ..CARD }
            }
            Self::Ascend310B => Profile {
                svm: false,
                hdc: false,
                library_folders: false,
                managers: &["/dev/davinci_manager_docker", "/dev/davinci_manager"],
            },
        }
    }
}

/// The families of the PCI device ids of vendor 0x19e5. MindCluster's own material shows only d801 and d802; the others are
/// public knowledge, and the configuration can override them.
pub fn pci_ids() -> BTreeMap<u16, Family> {
    BTreeMap::from([
        (0xd100, Family::Ascend310),
        (0xd500, Family::Ascend310P),
        (0xd801, Family::Ascend910A),
        (0xd802, Family::A2),
        (0xd803, Family::A3),
        (0xd806, Family::A5),
    ])
}

/// The product family of a node, if known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// The product family, if known.
    pub family: Option<Family>,
    /// How it was detected, or why it wasn't.
    pub evidence: String,
}

/// Whether a host must have something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// The host must have it.
    Yes,
    /// This family doesn't have it.
    No(Family),
    /// Some families don't have it, and the node's family is unknown.
    Unknown,
}

impl Product {
    /// A family that the configuration sets.
    pub fn configured(family: Family) -> Self {
        Self { family: Some(family), evidence: "set by configuration".to_owned() }
    }

    /// Whether this node must have a part of a profile.
    pub fn requires(&self, part: impl Fn(&Profile) -> bool) -> Requirement {
        match self.family {
            Some(family) if part(&family.profile()) => Requirement::Yes,
            Some(family) => Requirement::No(family),
            None => Requirement::Unknown,
        }
    }

    /// Detects the family by PCI ids, else by device nodes that only one family has.
    pub fn detect(root: &HostRoot, ids: &BTreeMap<u16, Family>) -> Self {
        let mut families: Vec<Family> =
            pci_devices(root).filter_map(|(_, id)| ids.get(&id).copied()).collect();
        families.sort_unstable();
        families.dedup();
        match families[..] {
            [family] => return Self { family: Some(family), evidence: "detected by PCI ids".to_owned() },
            [] => {}
            _ => {
                let names: Vec<&str> = families.iter().map(|family| family.as_str()).collect();
                return Self {
                    family: None,
                    evidence: format!("its PCI ids are of {}", names.join(" and ")),
                };
            }
        }
        let exists = |path: &str| root.resolve(path).is_ok();
        let detected =
            |family, paths: &str| Self { family: Some(family), evidence: format!("detected by {paths}") };
        if exists("/dev/spi_smbus") && exists("/dev/user_config") {
            detected(Family::Atlas200ISoc, "/dev/spi_smbus and /dev/user_config")
        } else if exists("/dev/davinci_manager_docker") {
            detected(Family::Ascend310B, "/dev/davinci_manager_docker")
        } else if exists("/dev/uburma") {
            detected(Family::A5, "/dev/uburma")
        } else if exists("/sys/class/unified_bus") {
            detected(Family::A5, "/sys/class/unified_bus")
        } else {
            Self { family: None, evidence: "no known PCI id or device node".to_owned() }
        }
    }
}

/// The number of NPUs on the PCI bus. Virtual functions and functions that a virtual machine uses aren't counted.
pub(super) fn pci_functions(root: &HostRoot, ids: &BTreeMap<u16, Family>) -> usize {
    let known = pci_devices(root).filter(|(_, id)| ids.contains_key(id));
    let own = known.filter(|(device, _)| {
        let is_virtual = root.resolve_nofollow(device.join("physfn")).is_ok();
        let driver = root.read_link(device.join("driver"));
        !is_virtual && !driver.is_ok_and(|driver| driver.ends_with("vfio-pci"))
    });
    own.count()
}

/// The vendor's PCI devices with their device ids.
fn pci_devices(root: &HostRoot) -> impl Iterator<Item = (PathBuf, u16)> {
    const DEVICES: &str = "/sys/bus/pci/devices";
    let names = root.list(DEVICES).unwrap_or_default();
    names.into_iter().filter_map(move |name| {
        let device = Path::new(DEVICES).join(name);
        let read = |file| {
            let content = root.read(device.join(file), 64).ok()?;
            Some(String::from_utf8(content).ok()?.trim().to_ascii_lowercase())
        };
        if read("vendor")? != VENDOR {
            return None;
        }
        let id = u16::from_str_radix(read("device")?.strip_prefix("0x")?, 16).ok()?;
        Some((device, id))
    })
}
