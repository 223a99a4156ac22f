//! Device nodes: the manager, the two shared ones, and the NPUs themselves.
//!
//! Which have to be there: `ascend-docker-runtime/runtime/process/process.go` (container creation fails without
//! them), `ascend-common/cdi/devnode.go` and `ascend-device-plugin/pkg/common/common.go` (they are left out in
//! silence, and the loss surfaces inside the training process).

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use super::product::{Demand, Product};
use super::{driver, unseen};
use crate::reason::Reason;
use crate::report::Finding;
use crate::root::HostRoot;

const REINSTALL: &str = "is the driver loaded? Load it, or reinstall it if `npu-smi info` fails too";

/// The manager's device node, without which no NPU container is created.
pub(crate) fn manager(root: &HostRoot, product: &Product) -> Finding {
    const USUAL: &[&str] = &["/dev/davinci_manager"];
    let places = product.family.map_or(USUAL, |family| family.profile().managers);
    let mut first = None;
    for path in places {
        let finding = device(root, path);
        if finding.reason == Reason::Present {
            return finding;
        }
        // The last place is the one that every product has; a fault of an earlier one weighs more than its absence.
        if finding.reason != Reason::DeviceMissing || first.is_none() {
            first = Some(finding);
        }
    }
    first.unwrap_or_else(|| Finding::new(Reason::FamilyUnknown, "no place is known for the manager's device"))
}

/// `/dev/hisi_hdc`.
pub(crate) fn hdc(root: &HostRoot, product: &Product) -> Finding {
    shared(root, "/dev/hisi_hdc", product, product.demands(|profile| profile.hdc))
}

/// `/dev/devmm_svm`.
pub(crate) fn svm(root: &HostRoot, product: &Product) -> Finding {
    shared(root, "/dev/devmm_svm", product, product.demands(|profile| profile.svm))
}

fn shared(root: &HostRoot, path: &str, product: &Product, demand: Demand) -> Finding {
    if let Demand::No(family) = demand {
        return Finding::at(path, Reason::NotOnThisProduct, format!("{family} has no {path}"));
    }
    let finding = device(root, path);
    if finding.reason == Reason::DeviceMissing && demand == Demand::Unknown {
        let message = format!(
            "{path} is missing, which is right on some product families and wrong on others, and this node's family isn't known ({}); set `family`",
            product.evidence
        );
        return Finding::at(path, Reason::FamilyUnknown, message);
    }
    finding
}

fn device(root: &HostRoot, path: &str) -> Finding {
    match root.follow(path) {
        Ok(entry) if entry.metadata().file_type().is_char_device() => {
            Finding::at(path, Reason::Present, format!("{path} is a device"))
        }
        Ok(_) => {
            let message = format!(
                "{path} isn't a device (a container runtime makes a folder when it mounts what isn't there); remove it and load the driver"
            );
            Finding::at(path, Reason::NotADevice, message)
        }
        Err(error) => unseen(root, path, &error, Reason::DeviceMissing, REINSTALL),
    }
}

/// The nodes `/dev/davinciN`. A virtual NPU (`vdavinciN`) is a part of one of them and isn't counted.
pub(super) fn npus(root: &HostRoot, expected: Option<u32>) -> Finding {
    const DEV: &str = "/dev";
    let names = match root.list(DEV) {
        Ok(names) => names,
        Err(error) => return unseen(root, DEV, &error, Reason::DevicesMissing, REINSTALL),
    };
    let numbers = npu_numbers(&names);
    let majors = driver::majors(root).ok();
    for &number in &numbers {
        let finding = npu(root, number, majors.as_deref());
        // One that went away between the listing and now: the count will tell, next time.
        if !matches!(finding.reason, Reason::Present | Reason::DeviceMissing) {
            return finding;
        }
    }
    count(&numbers, names.is_empty(), expected)
}

/// The N of all `davinciN` among the names in `/dev`, sorted.
pub(crate) fn npu_numbers(names: &[OsString]) -> Vec<u32> {
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| npu_number(name.to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

fn npu_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("davinci")?;
    digits.bytes().all(|c| c.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The device node of one NPU; `majors` are those of the driver, as far as they are known.
pub(crate) fn npu(root: &HostRoot, number: u32, majors: Option<&[u32]>) -> Finding {
    let path = format!("/dev/davinci{number}");
    let major = root.follow(&path).ok().filter(|entry| entry.metadata().file_type().is_char_device());
    let major = major.map(|entry| nix::sys::stat::major(entry.metadata().rdev()));
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

fn count(numbers: &[u32], nothing_there: bool, expected: Option<u32>) -> Finding {
    const ALL: &str = "/dev/davinci*";
    if nothing_there {
        let message = "/dev of the host isn't mounted below the host root; mount it there";
        return Finding::at(ALL, Reason::HostPathNotMounted, message);
    }
    let found = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    match expected {
        _ if found == 0 => {
            Finding::at(ALL, Reason::DevicesMissing, format!("there is no NPU device; {REINSTALL}"))
        }
        Some(expected) if found < expected => {
            let missing: Vec<String> = (0..expected)
                .filter(|number| !numbers.contains(number))
                .take(8)
                .map(|number| format!("davinci{number}"))
                .collect();
            let message = format!(
                "{found} of {expected} NPU devices are there, {} missing: has a card dropped? See `npu-smi info` and `lspci`",
                missing.join(", ")
            );
            Finding::at(ALL, Reason::DevicesMissing, message)
        }
        Some(expected) if found > expected => {
            let message =
                format!("{found} NPU devices are there and {expected} are expected; correct `npus`");
            Finding::at(ALL, Reason::DevicesUnexpected, message)
        }
        Some(_) => Finding::at(ALL, Reason::Present, format!("all {found} NPU devices are there")),
        None => Finding::at(
            ALL,
            Reason::Present,
            format!("{found} NPU devices are there (`npus` expects no number)"),
        ),
    }
}
