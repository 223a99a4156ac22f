//! Shared by the tests of the injection core.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

use serde_json::Value;
use swansong_inject::operation::Operation;
use swansong_inject::policy::Policy;
use swansong_inject::reason::Reason;
use swansong_inject::report::{Action, Outcome};
use swansong_inject::workload::WorkloadKind;
use swansong_inject::{inject, undo};

pub const MSPTI: &str = swansong_inject::policy::LIBMSPTI;
pub const TASKD: &str = swansong_inject::policy::LIBTASKD;

/// Our two libraries as `LD_PRELOAD` has them.
pub fn ours() -> String {
    format!("{MSPTI}:{TASKD}")
}

/// An object after its injection.
pub struct Injected {
    pub outcome: Outcome,
    pub object: Value,
}

/// Injects and applies the operations with an independent implementation of RFC 6902.
pub fn run(kind: WorkloadKind, object: &Value, policy: &Policy) -> Injected {
    let outcome = inject(kind, &object.to_string(), policy).expect("the object is well-formed");
    let object = apply(object, &outcome.operations);
    Injected { outcome, object }
}

/// [`run`] on a Pod with the default policy.
pub fn pod(object: &Value) -> Injected {
    run(WorkloadKind::Pod, object, &Policy::default())
}

/// The object after the undo of its injection.
pub fn undone(kind: WorkloadKind, object: &Value) -> Value {
    apply(object, &undo::uninject(kind, &object.to_string()).expect("an injected object").operations)
}

pub fn apply(object: &Value, operations: &[Operation]) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(operations).unwrap()).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).expect("every operation applies");
    object
}

impl Injected {
    pub fn paths(&self) -> Vec<&str> {
        self.outcome.operations.iter().map(|operation| operation.path.as_str()).collect()
    }

    pub fn warned(&self) -> Vec<Reason> {
        self.outcome.warnings.iter().map(|warning| warning.reason).collect()
    }

    pub fn noted(&self) -> Vec<Reason> {
        self.outcome.notes.iter().map(|note| note.reason).collect()
    }

    /// The action on a field of the only container of the only template.
    pub fn action(&self, field: &str) -> Option<&Action> {
        let [template] = &self.outcome.templates[..] else { panic!("one template") };
        let [container] = &template.containers[..] else { panic!("one container") };
        container.actions.iter().find(|action| action.field == field)
    }

    /// The effective value of an environment variable of the first container.
    pub fn env(&self, name: &str) -> Option<&Value> {
        env_of(&self.object["spec"]["containers"][0], name)
    }
}

/// The effective value of an environment variable.
pub fn env_of<'v>(container: &'v Value, name: &str) -> Option<&'v Value> {
    let entry = container["env"].as_array()?.iter().rev().find(|entry| entry["name"] == name)?;
    Some(if entry["value"].is_null() { &entry["valueFrom"] } else { &entry["value"] })
}
