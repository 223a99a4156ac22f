//! Faults in ClusterD's form.

use swansong_clusterd::{Class, FaultType, InvalidFault, PublicFault};
use swansong_fault_model::reconcile::OutboundFault;
use swansong_fault_model::{EARLIEST, Handling, Subject};

/// The fault as ClusterD accepts it.
///
/// # Errors
///
/// When ClusterD would drop it.
pub(crate) fn public_fault(node: &str, outbound: &OutboundFault) -> Result<PublicFault, InvalidFault> {
    let fault = &outbound.fault;
    let sources = fault.sources.iter().map(String::as_str).collect::<Vec<&str>>().join(",");
    PublicFault {
        fault_id: fault.id.clone(),
        fault_type: match fault.subject {
            Subject::Npu(_) => FaultType::Npu,
            Subject::Node => FaultType::Node,
        },
        class: class(fault.subject, fault.handling()),
        // The host's clock may not be set yet.
        fault_time: fault.since.max(EARLIEST),
        assertion: outbound.assertion,
        node: node.to_owned(),
        devices: fault.devices.clone(),
        location: [
            ("subject", fault.subject.to_string()),
            ("code", fault.code.to_string()),
            ("level", fault.classification.level.to_string()),
            ("source", sources),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into(),
        description: fault.describe(),
    }
    .finish()
}

const fn class(subject: Subject, handling: Handling) -> Class {
    match (subject, handling) {
        (Subject::Npu(_), Handling::EndRanks) => Class::ChipSeparate,
        (Subject::Node, Handling::EndRanks) => Class::NodeSeparate,
        (Subject::Npu(_), Handling::SubHealth) => Class::ChipSubHealth,
        (Subject::Node, Handling::SubHealth) => Class::NodeSubHealth,
        (_, Handling::None) => Class::Notice,
    }
}

/// What ClusterD does about a class.
pub(crate) const fn handling_of(class: Class) -> Handling {
    match class {
        Class::ChipSeparate | Class::NodeSeparate => Handling::EndRanks,
        Class::ChipSubHealth | Class::NodeSubHealth => Handling::SubHealth,
        Class::Notice => Handling::None,
    }
}
