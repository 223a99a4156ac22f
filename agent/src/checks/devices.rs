//! Device nodes: the manager, the two shared ones, and the NPUs.
//!
//! Container creation fails without the required ones (`ascend-docker-runtime/runtime/process/process.go`). The others are
//! silently left out, and the training process fails instead (`ascend-common/cdi/devnode.go`,
//! `ascend-device-plugin/pkg/common/common.go`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use super::product::{Family, Product, Requirement, pci_functions};
use super::{driver, path_finding};
use crate::finding::{Finding, Reason};
use crate::host::HostRoot;

const REINSTALL: &str = "is the driver loaded? Load it, or reinstall it if `npu-smi info` fails too";

/// The finding's path for all NPUs.
const ALL: &str = "/dev/davinci*";

/// Checks the manager's device node, without which no NPU container is created.
pub fn manager(root: &HostRoot, product: &Product) -> Finding {
    const USUAL: &[&str] = &["/dev/davinci_manager"];
    let paths = product.family.map_or(USUAL, |family| family.profile().managers);
    let mut first = None;
    for path in paths {
        let finding = device(root, path);
        if finding.reason == Reason::Present {
            return finding;
        }
        // A path that exists and is wrong says more than one that is missing.
        if finding.reason != Reason::DeviceMissing || first.is_none() {
            first = Some(finding);
        }
    }
    first.unwrap_or_else(|| Finding::new(Reason::FamilyUnknown, "the manager's device node is unknown"))
}

/// Checks the device node `/dev/hisi_hdc`.
pub fn hdc(root: &HostRoot, product: &Product) -> Finding {
    shared(root, "/dev/hisi_hdc", product, product.requires(|profile| profile.hdc))
}

/// Checks the device node `/dev/devmm_svm`.
pub fn svm(root: &HostRoot, product: &Product) -> Finding {
    shared(root, "/dev/devmm_svm", product, product.requires(|profile| profile.svm))
}

fn shared(root: &HostRoot, path: &str, product: &Product, requirement: Requirement) -> Finding {
    if let Requirement::No(family) = requirement {
        return Finding::at(path, Reason::NotOnThisProduct, format!("{family} has no {path}"));
    }
    let finding = device(root, path);
    if finding.reason == Reason::DeviceMissing && requirement == Requirement::Unknown {
        let message = format!(
            "{path} is missing; only some product families have it, and this node's family is unknown ({}); set `family`",
            product.evidence
        );
        return Finding::at(path, Reason::FamilyUnknown, message);
    }
    finding
}

fn device(root: &HostRoot, path: &str) -> Finding {
    match root.resolve(path) {
        Ok(entry) if entry.metadata().file_type().is_char_device() => {
            Finding::at(path, Reason::Present, format!("{path} is a device"))
        }
        Ok(_) => {
            let message = format!(
                "{path} isn't a device (container runtimes create a folder when they mount a missing path); remove it and load the driver"
            );
            Finding::at(path, Reason::NotADevice, message)
        }
        Err(error) => path_finding(root, path, &error, Reason::DeviceMissing, REINSTALL),
    }
}

/// The number of NPUs that a node should have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ExpectedNpus {
    /// By the configuration, which has precedence.
    pub(super) configured: Option<u32>,
    /// By the node's capacity.
    pub(super) capacity: Option<u32>,
}

/// Checks the nodes `/dev/davinciN`. A virtual NPU (`vdavinciN`) is a part of one of them and isn't counted.
pub(super) fn npus(root: &HostRoot, expected: ExpectedNpus, pci_ids: &BTreeMap<u16, Family>) -> Finding {
    const DEV: &str = "/dev";
    let names = match root.list(DEV) {
        Ok(names) => names,
        Err(error) => return path_finding(root, DEV, &error, Reason::DevicesMissing, REINSTALL),
    };
    let numbers = npu_numbers(&names);
    let majors = driver::majors(root).ok();
    for &number in &numbers {
        let finding = npu(root, number, majors.as_deref());
        // A device that disappeared after the listing is missing in the next one.
        if !matches!(finding.reason, Reason::Present | Reason::DeviceMissing) {
            return finding;
        }
    }
    if names.is_empty() {
        let message = "/dev of the host isn't mounted below the host root; mount it there";
        return Finding::at(ALL, Reason::HostPathNotMounted, message);
    }
    if expected.configured.is_none() {
        // One PCI function may carry several NPUs, so more device nodes than functions are right.
        let functions = pci_functions(root, pci_ids);
        if !numbers.is_empty() && numbers.len() < functions {
            let message = format!(
                "PCI shows {functions} NPUs and /dev has {} device nodes: has a card dropped? See `npu-smi info` and `lspci`, or set `npus`",
                numbers.len()
            );
            return Finding::at(ALL, Reason::DevicesMissing, message).about(numbers);
        }
    }
    count(&numbers, expected.configured.or(expected.capacity))
}

/// The sorted numbers N of all `davinciN` among the names in `/dev`.
pub fn npu_numbers(names: &[OsString]) -> Vec<u32> {
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| npu_number(name.to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

fn npu_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("davinci")?;
    digits.bytes().all(|c| c.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Checks the device node of one NPU. `majors` are those of the driver, if known.
pub fn npu(root: &HostRoot, number: u32, majors: Option<&[u32]>) -> Finding {
    let path = format!("/dev/davinci{number}");
    let entry = root.resolve(&path).ok().filter(|entry| entry.metadata().file_type().is_char_device());
    let major = entry.map(|entry| nix::sys::stat::major(entry.metadata().rdev()));
    match (major, majors) {
        (Some(major), Some(majors))
            if !majors.is_empty() && !majors.iter().any(|&known| u64::from(known) == major) =>
        {
            let message = format!(
                "{path} has major {major}, which no loaded Ascend driver owns (left from an earlier load); reload the driver"
            );
            Finding::at(path, Reason::DeviceNodeStale, message)
        }
        _ => device(root, &path),
    }
}

fn count(numbers: &[u32], expected: Option<u32>) -> Finding {
    let found = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    match expected {
        _ if found == 0 => {
            Finding::at(ALL, Reason::DevicesMissing, format!("there is no NPU device; {REINSTALL}"))
        }
        Some(expected) if found < expected => {
            let missing: Vec<String> = (0..expected)
                .filter(|number| !numbers.contains(number))
                .map(|number| format!("davinci{number}"))
                .collect();
            let message = format!(
                "{found} of {expected} NPU devices exist, {} missing: has a card dropped? See `npu-smi info` and `lspci`",
                missing[..missing.len().min(8)].join(", ")
            );
            Finding::at(ALL, Reason::DevicesMissing, message).about(missing)
        }
        Some(expected) if found > expected => {
            let message = format!("{found} NPU devices exist and {expected} are expected; correct `npus`");
            Finding::at(ALL, Reason::DevicesUnexpected, message)
        }
        Some(_) => Finding::at(ALL, Reason::Present, format!("all {found} NPU devices exist")),
        None => Finding::at(
            ALL,
            Reason::Present,
            format!("{found} NPU devices exist (`npus` requires no number)"),
        ),
    }
}
