//! What there is of the driver and its devices.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;

use swansong_fault_model::DriverFault;

use crate::checks::{self, Product, Requirement};
use crate::finding::{Finding, Reason, Status};

use crate::host::{Entry, HostRoot};

/// Something that may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Thing {
    /// `/dev/davinciN`.
    Npu(u32),
    /// What the driver needs itself, by the fault that its absence is.
    Driver(DriverFault),
}

/// How something is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum There {
    /// As it should be.
    Yes,
    /// It isn't, or something else is in its place.
    No(String),
    /// It can't be seen.
    Unknown(String),
}

/// Everything that was looked at. An NPU without a device node isn't in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) things: BTreeMap<Thing, There>,
    /// Those among them that the product has to have.
    pub(super) demanded: Vec<Thing>,
}

/// The host's `/dev`.
pub(super) fn folder(root: &HostRoot) -> Result<Entry, String> {
    root.resolve("/dev").map_err(|error| format!("/dev can't be looked at: {error}"))
}

/// Looks at everything.
///
/// # Errors
///
/// When it isn't the `/dev` of a host, or can't be read: then nothing is known.
pub(super) fn look(root: &HostRoot, dev: &Entry, product: &Product) -> Result<Facts, String> {
    let names = dev.list().map_err(|error| format!("/dev can't be read: {error}"))?;
    // Every Linux has that; a folder that nothing is mounted on doesn't.
    if !root.resolve("/dev/null").is_ok_and(|null| null.metadata().file_type().is_char_device()) {
        return Err("/dev of the host isn't mounted below the host root: it has no /dev/null".to_owned());
    }
    let majors = checks::majors(root).ok();
    let mut facts = Facts::default();
    for number in checks::npu_numbers(&names) {
        let finding = checks::npu(root, number, majors.as_deref());
        facts.things.insert(Thing::Npu(number), there(finding));
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
            facts.things.insert(Thing::Driver(fault), there(finding));
        }
        if demand == Requirement::Yes {
            facts.demanded.push(Thing::Driver(fault));
        }
    }
    Ok(facts)
}

fn there(finding: Finding) -> There {
    match finding.status() {
        Status::Pass => There::Yes,
        Status::Fail => There::No(finding.message),
        // It is missing, and whether that is right isn't known; that it was there before tells it.
        Status::Unknown if finding.reason == Reason::FamilyUnknown => There::No(finding.message),
        Status::Unknown => There::Unknown(finding.message),
    }
}
