//! The inspection of the driver and its device nodes.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;

use swansong_fault_model::DriverFault;

use crate::checks::{self, Product, Requirement};
use crate::finding::{Finding, Reason, Status};

use crate::host::{Entry, HostRoot};

/// Something that may disappear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum DeviceNode {
    /// The node `/dev/davinciN`.
    Npu(u32),
    /// A part of the driver, by the fault that it is missing.
    Driver(DriverFault),
}

/// Whether a device node is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is as it should be.
    Present,
    /// It is missing, or something else is in its place.
    Missing(String),
    /// It can't be inspected.
    Unknown(String),
}

/// All device nodes that were inspected, without those of NPUs that are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inspection {
    pub(super) nodes: BTreeMap<DeviceNode, Presence>,
    /// The nodes that the product requires.
    pub(super) required: Vec<DeviceNode>,
}

pub(super) fn open_dev(root: &HostRoot) -> Result<Entry, String> {
    root.resolve("/dev").map_err(|error| format!("/dev can't be inspected: {error}"))
}

/// Inspects everything.
///
/// # Errors
///
/// When `/dev` isn't that of a host, or can't be read.
pub(super) fn inspect(root: &HostRoot, dev: &Entry, product: &Product) -> Result<Inspection, String> {
    let names = dev.list().map_err(|error| format!("/dev can't be read: {error}"))?;
    // Every Linux host has it, unlike a folder on which nothing is mounted.
    if !root.resolve("/dev/null").is_ok_and(|null| null.metadata().file_type().is_char_device()) {
        return Err("/dev of the host isn't mounted below the host root: it has no /dev/null".to_owned());
    }
    let majors = checks::majors(root).ok();
    let mut inspection = Inspection::default();
    for number in checks::npu_numbers(&names) {
        let finding = checks::npu(root, number, majors.as_deref());
        inspection.nodes.insert(DeviceNode::Npu(number), presence(finding));
    }
    let demands = |part: fn(&checks::Profile) -> bool| product.requires(part);
    let parts = [
        (DriverFault::ManagerMissing, Requirement::Yes, checks::manager(root, product)),
        (DriverFault::HdcMissing, demands(|profile| profile.hdc), checks::hdc(root, product)),
        (DriverFault::SvmMissing, demands(|profile| profile.svm), checks::svm(root, product)),
        (DriverFault::NotLoaded, Requirement::Yes, checks::loaded(root)),
    ];
    for (fault, demand, finding) in parts {
        if !matches!(demand, Requirement::No(_)) {
            inspection.nodes.insert(DeviceNode::Driver(fault), presence(finding));
        }
        if demand == Requirement::Yes {
            inspection.required.push(DeviceNode::Driver(fault));
        }
    }
    Ok(inspection)
}

fn presence(finding: Finding) -> Presence {
    match finding.status() {
        Status::Pass => Presence::Present,
        Status::Fail => Presence::Missing(finding.message),
        // It is missing; whether that is a fault depends on whether it existed.
        Status::Unknown if finding.reason == Reason::FamilyUnknown => Presence::Missing(finding.message),
        Status::Unknown => Presence::Unknown(finding.message),
    }
}
