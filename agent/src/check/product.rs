//! Product families: what a node of each family has, and how a family is told.
//!
//! Device nodes: `ascend-docker-runtime/runtime/process/process.go`, `ascend-common/cdi/devnode.go` and
//! `ascend-device-plugin/pkg/common/common.go`. What a family lacks is never demanded of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::root::HostRoot;

/// Huawei's PCI vendor id, as in `npu-smi info -t board` (`ascend-faultdiag`'s sample of it).
const VENDOR: &str = "0x19e5";

/// A family of Ascend products, as far as their hosts differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// Ascend 310 cards.
    Ascend310,
    /// Ascend 310P cards (Atlas 300I Pro, 300V, 300I Duo).
    Ascend310P,
    /// Ascend 310B (Atlas 200I A2, 500 A2).
    Ascend310B,
    /// Atlas 200I SoC A1.
    Atlas200ISoc,
    /// Atlas 200 Model 3000.
    Atlas200,
    /// The first training generation, 910A.
    Ascend910A,
    /// 910B, the A2 generation.
    A2,
    /// 910_93, the A3 generation.
    A3,
    /// Ascend950, the A5 generation.
    A5,
}

/// What a family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// `/dev/devmm_svm`, shared virtual memory.
    pub svm: bool,
    /// `/dev/hisi_hdc`, the channel between host and device.
    pub hdc: bool,
    /// The folders `common` and `driver` of `driver/lib64`. No source has them on products whose system runs on the
    /// chip itself, where libdcmi.so is in `/usr/lib64` (`ascend-docker-runtime/build/scripts/base.list_A200IA2`).
    pub library_folders: bool,
    /// The manager's device node, best first (310B: `process.go`).
    pub managers: &'static [&'static str],
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 9] = [
        Self::Ascend310,
        Self::Ascend310P,
        Self::Ascend310B,
        Self::Atlas200ISoc,
        Self::Atlas200,
        Self::Ascend910A,
        Self::A2,
        Self::A3,
        Self::A5,
    ];

    /// The name by which configuration and messages call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ascend310 => "310",
            Self::Ascend310P => "310P",
            Self::Ascend310B => "310B",
            Self::Atlas200ISoc => "200I-SoC-A1",
            Self::Atlas200 => "200-3000",
            Self::Ascend910A => "910A",
            Self::A2 => "A2",
            Self::A3 => "A3",
            Self::A5 => "A5",
        }
    }

    /// What it has.
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

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of no family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no family of that name")]
pub struct NoSuchFamily;

impl FromStr for Family {
    type Err = NoSuchFamily;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|family| family.as_str().eq_ignore_ascii_case(name));
        found.ok_or(NoSuchFamily)
    }
}

/// Which families the PCI device ids of vendor 0x19e5 belong to. Only d801 and d802 are seen in MindCluster's own
/// material; the others are public knowledge, so configuration can add to and overrule them.
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

/// The family of a node, if it could be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// The family.
    pub family: Option<Family>,
    /// By what it was told, or why not.
    pub evidence: String,
}

/// Whether something has to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// It has to.
    Yes,
    /// This family has none.
    No(Family),
    /// Some families have none, and this node's family isn't known.
    Unknown,
}

impl Product {
    /// The family that configuration names.
    pub fn set(family: Family) -> Self {
        Self { family: Some(family), evidence: "set by configuration".to_owned() }
    }

    /// Whether this node has to have a part of a profile.
    pub fn demands(&self, part: impl Fn(&Profile) -> bool) -> Demand {
        match self.family {
            Some(family) if part(&family.profile()) => Demand::Yes,
            Some(family) => Demand::No(family),
            None => Demand::Unknown,
        }
    }

    /// Tells the family by what the host shows: PCI ids first, then device nodes that one family alone has.
    pub fn detect(root: &HostRoot, ids: &BTreeMap<u16, Family>) -> Self {
        let mut families: Vec<Family> = pci_devices(root).filter_map(|id| ids.get(&id).copied()).collect();
        families.sort_unstable();
        families.dedup();
        match families[..] {
            [family] => return Self { family: Some(family), evidence: "told by its PCI ids".to_owned() },
            [] => {}
            _ => {
                let names: Vec<&str> = families.iter().map(|family| family.as_str()).collect();
                return Self { family: None, evidence: format!("its PCI ids say {}", names.join(" and ")) };
            }
        }
        let there = |path: &str| root.follow(path).is_ok();
        let told = |family, path: &str| Self { family: Some(family), evidence: format!("told by {path}") };
        if there("/dev/spi_smbus") && there("/dev/user_config") {
            told(Family::Atlas200ISoc, "/dev/spi_smbus and /dev/user_config")
        } else if there("/dev/davinci_manager_docker") {
            told(Family::Ascend310B, "/dev/davinci_manager_docker")
        } else if there("/dev/uburma") {
            told(Family::A5, "/dev/uburma")
        } else if there("/sys/class/unified_bus") {
            told(Family::A5, "/sys/class/unified_bus")
        } else {
            Self { family: None, evidence: "no PCI id and no device node tells it".to_owned() }
        }
    }
}

/// The device ids of the vendor's PCI devices.
fn pci_devices(root: &HostRoot) -> impl Iterator<Item = u16> {
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
        u16::from_str_radix(read("device")?.strip_prefix("0x")?, 16).ok()
    })
}
