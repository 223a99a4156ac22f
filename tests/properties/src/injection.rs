use std::str;

use serde_json::Value;
use swansong_inject::operation::Operation;
use swansong_inject::policy::{NodeReadiness, Policy};
use swansong_inject::workload::WorkloadKind;
use swansong_inject::{inject as core, undo};

const KINDS: [WorkloadKind; 7] = [
    WorkloadKind::Pod,
    WorkloadKind::AscendJob,
    WorkloadKind::VolcanoJob,
    WorkloadKind::Deployment,
    WorkloadKind::StatefulSet,
    WorkloadKind::Job,
    WorkloadKind::CronJob,
];

const READINESS: [NodeReadiness; 3] = [NodeReadiness::Off, NodeReadiness::Prefer, NodeReadiness::Require];

/// Any text as an object of any kind: the patch applies, a second injection adds nothing, and the undo is exact.
///
/// The first byte selects the kind and the node readiness: `0{"kind":"Pod"…` is a Pod without node readiness, `7` with
/// preferred ready nodes, `>` with required ones.
pub fn inject(input: &[u8]) {
    let Some((kind, text)) = input.split_first() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    let choice = usize::from(kind.wrapping_sub(b'0'));
    let kind = KINDS[choice % KINDS.len()];
    let node_readiness = READINESS[choice / KINDS.len() % READINESS.len()];
    let policy = Policy { node_readiness, ..Policy::default() };
    let Ok(first) = core(kind, text, &policy) else { return };
    let Ok(object) = serde_json::from_str::<Value>(text) else { return };
    let injected = apply(&object, &first.operations);
    // `serde_json::Value` merges repeated keys, so only texts without them are compared.
    if object.to_string().len() != text.chars().filter(|c| !c.is_ascii_whitespace()).count() {
        return;
    }
    let second = core(kind, &injected.to_string(), &policy).expect("its own output");
    assert!(second.operations.is_empty(), "{:?}", second.operations);
    if !text.contains("swansong.dev/injected") {
        let undone = undo::uninject(kind, &injected.to_string()).expect("its own record").operations;
        assert_eq!(apply(&injected, &undone), object);
    }
}

fn apply(object: &Value, operations: &[Operation]) -> Value {
    let operations = serde_json::to_value(operations).expect("operations serialise");
    let patch: json_patch::Patch = serde_json::from_value(operations).expect("operations are RFC 6902");
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).expect("every operation applies");
    object
}
