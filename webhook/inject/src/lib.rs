//! The injection core: raw JSON in, JSON patch operations and findings out, without I/O or a clock.
//!
//! [`inject`] serves every kind of workload. It reads the object through borrowed views ([`view`]), decides per template
//! ([`options`], [`select`], [`node_readiness`]) and per container (`env`, `ports`, [`preload`], [`launcher_hook`]), and records its changes
//! ([`swansong_api::record`]) for an exact undo ([`undo::uninject`]). Injecting its own output yields no operations.

mod additions;
mod budget;
mod container;
mod context;
pub mod discovery;
mod env;
mod hazards;
mod kind;
pub mod launcher_hook;
pub mod manager;
mod metadata;
pub mod node_readiness;
pub mod operation;
pub mod options;
mod original;
pub mod policy;
mod ports;
pub mod preload;
pub mod reason;
pub mod report;
mod reset_config;
pub mod select;
mod source;
pub mod spelling;
mod strategies;
mod template;
mod trainer;
pub mod undo;
pub mod view;
pub mod workload;

use swansong_api::annotations::MIRROR_POD;

use self::budget::Budget;
use self::operation::Operation;
use self::policy::Policy;
use self::reason::Reason;
use self::report::{Outcome, Warning};
pub use self::source::ObjectJson;
use self::source::Source;
use self::template::TemplateInjection;
use self::view::{Metadata, Object, ShapeError};
use self::workload::WorkloadKind;

/// Prepares every pod template in `json`, an object of `kind`, for the dying checkpoint.
///
/// ```
/// use swansong_inject::{inject, policy::Policy, workload::WorkloadKind};
///
/// let pod = r#"{"kind": "Pod", "metadata": {"annotations": {"recover-strategy": "dump"}},
///               "spec": {"containers": [{"name": "ascend"}]}}"#;
/// let outcome = inject(WorkloadKind::Pod, pod, &Policy::default())?;
/// assert!(outcome.injected());
/// assert_eq!(outcome.operations[0].path, "/spec/containers/0/env");
/// # Ok::<(), swansong_inject::view::ShapeError>(())
/// ```
///
/// # Errors
///
/// When a field that a decision needs has the wrong type. The caller then doesn't change the object.
pub fn inject(kind: WorkloadKind, json: &str, policy: &Policy) -> Result<Outcome, ShapeError> {
    let object = Object::parse(kind, json)?;
    let parse = || serde_json::from_str(json).unwrap_or_default();
    let json = ObjectJson { length: json.len(), parse: &parse };
    Ok(inject_object(kind, &object, json, policy))
}

/// As [`inject`], for an object that was read before.
pub fn inject_object(
    kind: WorkloadKind,
    object: &Object<'_>,
    json: ObjectJson<'_>,
    policy: &Policy,
) -> Outcome {
    let policy = policy.for_namespace(object.metadata().present().map_or("", |own| own.namespace.text()));
    let mut outcome = inject_templates(kind, object, json, policy);
    (outcome.notes, outcome.warnings) =
        std::mem::take(&mut outcome.warnings).into_iter().partition(|message| message.reason.is_note());
    outcome
}

fn inject_templates(
    kind: WorkloadKind,
    object: &Object<'_>,
    json: ObjectJson<'_>,
    policy: &Policy,
) -> Outcome {
    let job = if kind == WorkloadKind::Pod { None } else { object.metadata().present() };
    let templates = workload::templates(object);
    let mut outcome = Outcome::default();
    if !object.has_kind() {
        outcome.warn(
            Reason::KindMissing,
            "the object has no `kind`; the kind of the request applies".to_owned(),
        );
    }
    // The annotations of a job are read again for each template.
    let mut budget = Budget::default();
    budget.spend(job.map_or(0, Metadata::annotations_length).saturating_mul(templates.len()));
    if budget.is_spent() {
        return left_unchanged(Reason::ObjectTooLarge);
    }
    if let Object::Pod(pod) = object
        && pod.metadata.present().is_some_and(|metadata| metadata.annotation(MIRROR_POD).is_some())
    {
        outcome.skip = Some(Reason::MirrorPod);
        return outcome;
    }
    let request = strategies::read(kind, job, &templates, policy, &mut outcome);
    if let Some(reason) = request.skip_reason() {
        outcome.skip = Some(reason);
        return outcome;
    }
    let source = Source::new(json.parse);
    for (located, request) in templates.iter().zip(&request.templates) {
        let count = templates.len();
        let template = TemplateInjection { kind, located, job, policy, count, source: &source };
        let report = template.run(*request, &mut outcome, &mut budget);
        outcome.templates.push(report);
        budget.count(&outcome.operations, &outcome.warnings);
        if budget.annotations_exceeded {
            return left_unchanged(Reason::AnnotationsTooLarge);
        }
        if budget.is_spent() {
            return left_unchanged(Reason::ObjectTooLarge);
        }
    }
    // A skip of all templates is a skip of the object.
    outcome.skip = outcome.templates.iter().map(|template| template.skip).reduce(Option::and).flatten();
    if outcome.skip.is_none() && !strategies::amend_job(kind, object, &templates, policy, &mut outcome) {
        return left_unchanged(Reason::AnnotationsTooLarge);
    }
    if outcome.skip.is_none() {
        hazards::warn(kind, object, &templates, &mut outcome);
        trainer::warn(kind, &templates, &mut outcome);
    }
    if stored_length(kind, json.length, &outcome.operations) > MAX_OBJECT {
        return left_unchanged(Reason::ObjectTooLarge);
    }
    outcome
}

/// In bytes: somewhat less than the 1.5 MiB of etcd, because the API server adds defaults and its own metadata.
const MAX_OBJECT: usize = 1_494_220;

/// The estimated size of the injected object; 0 if nothing is added.
fn stored_length(kind: WorkloadKind, length: usize, operations: &[Operation]) -> usize {
    let values =
        operations.iter().map(|operation| operation.value.as_ref().map_or(0, |value| value.get().len()));
    let added: usize = values.sum();
    // managedFields of a Pod repeat the names of variables and ports.
    let factor = if kind == WorkloadKind::Pod { 2 } else { 1 };
    if added == 0 { 0 } else { length + factor * added }
}

/// A partial injection would be worse than none.
fn left_unchanged(reason: Reason) -> Outcome {
    let mut outcome = Outcome { skip: Some(reason), ..Outcome::default() };
    let what = if reason == Reason::AnnotationsTooLarge { "its annotations" } else { "it" };
    outcome.warn(
        reason,
        format!(
            "the object was left unchanged: with the injection {what} would be larger than the API server accepts"
        ),
    );
    outcome
}

impl Outcome {
    fn warn(&mut self, reason: Reason, message: String) {
        self.warnings.push(Warning { reason, message });
    }
}
