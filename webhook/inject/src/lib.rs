//! The injection core: raw JSON in, JSON patch operations and findings out, without I/O or a clock.
//!
//! [`inject`] serves every kind of workload. It reads the object through borrowed views ([`view`]), decides per template
//! ([`options`], [`select`], [`node_readiness`]) and per container (`env`, `ports`, [`preload`]), and records its changes
//! ([`swansong_api::record`]) for an exact undo ([`undo::uninject`]). Injecting its own output yields no operations.

mod budget;
mod env;
mod kind;
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
pub mod select;
mod spelling;
mod strategies;
pub mod undo;
pub mod view;
pub mod workload;

use swansong_api::annotations::{JOB_COMPLETION_INDEX, MIRROR_POD, OPTIONS, RECOVER_STRATEGY};
use swansong_api::record::{ContainerRecord, Record};
use swansong_api::strategy::Strategies;
use swansong_api::{env as names, labels};

use crate::policy::{NamedPort, Policy};
use crate::reason::Reason;
use crate::workload::{LocatedTemplate, WorkloadKind};

use self::budget::Budget;
use self::env::{EnvInjection, ttp_port_of};
use self::metadata::MetadataChanges;
use self::operation::Operation;
use self::options::Options;
use self::ports::Network;
use self::report::{Action, ContainerReport, Outcome, TemplateReport, Warning};
use self::select::{Chosen, choose};
use self::view::{Metadata, Object, PodSpec, ShapeError, Slot, Template};

/// Prepares every pod template in `json`, an object of `kind`, for the dying checkpoint.
///
/// ```
/// use swansong_inject::{inject, policy::Policy, workload::WorkloadKind};
///
/// let pod = r#"{"kind": "Pod", "metadata": {"annotations": {"recover-strategy": "dump"}},
///               "spec": {"containers": [{"name": "ascend"}]}}"#;
/// let outcome = inject(WorkloadKind::Pod, pod, &Policy::default())?;
/// let paths: Vec<_> = outcome.operations.iter().map(|operation| operation.path.as_str()).collect();
/// assert_eq!(
///     paths,
///     ["/spec/containers/0/env", "/spec/containers/0/ports", "/metadata/annotations/swansong.dev~1injected"]
/// );
/// # Ok::<(), swansong_inject::view::ShapeError>(())
/// ```
///
/// # Errors
///
/// When a field that a decision needs has the wrong type. The caller then doesn't change the object.
pub fn inject(kind: WorkloadKind, json: &str, policy: &Policy) -> Result<Outcome, ShapeError> {
    let object = Object::parse(kind, json)?;
    let job = if kind == WorkloadKind::Pod { None } else { object.metadata().present() };
    let mut outcome = inject_object(kind, &object, json.len(), job, policy);
    (outcome.notes, outcome.warnings) =
        std::mem::take(&mut outcome.warnings).into_iter().partition(|message| message.reason.is_note());
    Ok(outcome)
}

fn inject_object(
    kind: WorkloadKind,
    object: &Object<'_>,
    length: usize,
    job: Option<&Metadata<'_>>,
    policy: &Policy,
) -> Outcome {
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
    for (located, triggered) in templates.iter().zip(&request.templates) {
        let report =
            TemplateInjection { kind, located, job, policy }.run(*triggered, &mut outcome, &mut budget);
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
    if stored_length(kind, length, &outcome.operations) > MAX_OBJECT {
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

/// Collects actions, operations and warnings of one container.
pub(crate) struct ContainerContext<'o> {
    /// Prefix of messages, such as `replica Master, `; empty for a Pod.
    template: &'o str,
    container: &'o str,
    actions: Vec<Action>,
    operations: &'o mut Vec<Operation>,
    warnings: &'o mut Vec<Warning>,
}

impl ContainerContext<'_> {
    fn record_action(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn warn(&mut self, reason: Reason, message: &str) {
        let Self { template, container, .. } = self;
        self.warnings
            .push(Warning { reason, message: format!("{template}container {container}: {message}") });
    }
}

struct TemplateInjection<'t, 'o, 'a, 'p> {
    kind: WorkloadKind,
    located: &'t LocatedTemplate<'o, 'a>,
    job: Option<&'o Metadata<'a>>,
    policy: &'p Policy,
}

impl<'o, 'a> TemplateInjection<'_, 'o, 'a, '_> {
    fn run(&self, triggered: bool, outcome: &mut Outcome, budget: &mut Budget) -> TemplateReport {
        let LocatedTemplate { path, template, rank_zero, pods, lacks_npus } = self.located;
        let rank_zero = rank_zero.unwrap_or_else(|| pod_is_rank_zero(template));
        let mut report = TemplateReport {
            path: path.clone(),
            rank_zero,
            skip: None,
            actions: Vec::new(),
            containers: Vec::new(),
        };
        if !triggered {
            report.skip = Some(Reason::StrategyWithoutDump);
            return report;
        }
        let own = template.metadata.present();
        let options = Options::read(own, self.job, &mut outcome.warnings);
        let mut changes = MetadataChanges::default();
        if let Some(job) = self.job {
            copy_from_job(job, own, &mut changes, &mut report.actions);
        }
        let mut record = Record::default();
        let Outcome { operations, warnings, .. } = outcome;
        report.skip = match template.spec.present() {
            _ if options.opted_out => Some(Reason::OptedOut),
            None => Some(Reason::NoContainerChosen),
            Some(spec) if is_windows(spec) => {
                warnings.push(Warning {
                    reason: Reason::Windows,
                    message: format!(
                        "{}a Windows pod can't preload libraries and was left unchanged",
                        self.prefix()
                    ),
                });
                Some(Reason::Windows)
            }
            Some(spec) => {
                let chosen = choose(spec, &options, *lacks_npus, warnings);
                let mut network = Network::of(spec, rank_zero, *pods);
                for chosen in &chosen {
                    let (container, container_record) =
                        self.container(*chosen, &options, &mut network, operations, warnings);
                    if container_record != ContainerRecord::default() {
                        record.containers.insert(container.name.clone(), container_record);
                    }
                    report.containers.push(container);
                    budget.count(operations, warnings);
                    if budget.is_spent() {
                        break;
                    }
                }
                if !chosen.is_empty() {
                    self.request_ready_nodes(spec, &mut record, &mut report.actions, operations, warnings);
                }
                if chosen.is_empty() && *lacks_npus && options.containers.is_none() {
                    warnings.push(Warning {
                        reason: Reason::TemplateWithoutNpu,
                        message: format!(
                            "{}it requests no NPU, unlike others of the job, and was left unchanged",
                            self.prefix()
                        ),
                    });
                    Some(Reason::TemplateWithoutNpu)
                } else {
                    chosen.is_empty().then_some(Reason::NoContainerChosen)
                }
            }
        };
        if report.skip.is_some() && report.skip != Some(Reason::OptedOut) {
            // Only an opt-out has to reach the Pods of a template that isn't injected.
            changes = MetadataChanges::default();
            report.actions.clear();
        }
        budget.annotations_exceeded |= !changes.emit(path, &template.metadata, record, operations, warnings);
        report
    }

    fn request_ready_nodes(
        &self,
        spec: &PodSpec<'_>,
        record: &mut Record,
        actions: &mut Vec<Action>,
        operations: &mut Vec<Operation>,
        warnings: &mut Vec<Warning>,
    ) {
        let (wanted, path) = (self.policy.node_readiness, &self.located.path);
        if let Some(request) =
            node_readiness::request(wanted, path, &self.prefix(), spec, operations, warnings)
        {
            record.node_readiness = request.record;
            actions.push(request.action);
        }
    }

    fn container(
        &self,
        chosen: Chosen<'o, 'a>,
        options: &Options<'_>,
        network: &mut Network,
        operations: &mut Vec<Operation>,
        warnings: &mut Vec<Warning>,
    ) -> (ContainerReport, ContainerRecord) {
        let Chosen { list, index, container } = chosen;
        let name = container.name();
        let path = format!("{}/spec/{list}/{index}", self.located.path);
        let template = self.prefix();
        let mut record = ContainerRecord::default();
        let libraries = (!options.skips_preload(name))
            .then(|| libraries(options, container.image.present().map_or("", |image| image), self.policy))
            .map(|libraries| (libraries, options.preload_order));
        let mut context = ContainerContext {
            template: &template,
            container: name,
            actions: Vec::new(),
            operations,
            warnings,
        };
        EnvInjection::new(&mut context, container, self.policy, &path, &mut record).run(&libraries);
        let ttp_port = NamedPort {
            name: self.policy.ttp_port.name.clone(),
            port: ttp_port_of(container, &self.policy.ttp_port).number(),
        };
        let wanted = [ttp_port, self.policy.taskd_port.clone()];
        ports::inject(&mut context, container, &wanted, network, &path, &mut record);
        (ContainerReport { name: name.to_owned(), actions: context.actions }, record)
    }

    /// Prefix of messages about the template; empty for kinds with one template.
    fn prefix(&self) -> String {
        let part = self.located.path.rsplit('/').nth(1).unwrap_or_default();
        match self.kind {
            WorkloadKind::AscendJob => format!("replica {part}, "),
            WorkloadKind::VolcanoJob => format!("task {part}, "),
            _ => String::new(),
        }
    }
}

/// The libraries of a container: from the annotation, else from the rule for its image, else the default.
fn libraries<'p>(options: &Options<'p>, image: &str, policy: &'p Policy) -> Vec<&'p str> {
    let rule = policy.image_rules.iter().find(|rule| rule.matches(image));
    let pick = |annotation: Option<&'p str>, ruled: Option<&'p String>, default: &'p String| {
        annotation.or(ruled.map(String::as_str)).unwrap_or(default)
    };
    let libmspti =
        pick(options.libmspti, rule.and_then(|rule| rule.libmspti.as_ref()), &policy.libraries.libmspti);
    let libtaskd =
        pick(options.libtaskd, rule.and_then(|rule| rule.libtaskd.as_ref()), &policy.libraries.libtaskd);
    if libmspti == libtaskd { vec![libmspti] } else { vec![libmspti, libtaskd] }
}

/// Copies the strategy and Swansong's options from a job to a template that lacks them.
///
/// ascend-operator (`pod.go` `createPodSpec`) and Volcano (`createJobPod`) don't copy them, and the webhook sees only a
/// Pod's own annotations.
fn copy_from_job(
    job: &Metadata<'_>,
    own: Option<&Metadata<'_>>,
    changes: &mut MetadataChanges,
    actions: &mut Vec<Action>,
) {
    let missing = |key: &str| own.is_none_or(|metadata| metadata.annotation(key).is_none());
    if let Some(raw) = job.annotation(RECOVER_STRATEGY).filter(|_| missing(RECOVER_STRATEGY)) {
        let normalised = Strategies::parse(raw).normalised();
        actions.push(Action {
            reason: Reason::StrategyCopied,
            ..Action::added("annotations.recover-strategy", normalised.clone())
        });
        changes.annotations.push((RECOVER_STRATEGY, normalised));
    }
    for key in OPTIONS {
        if let Some(value) = job.annotation(key).filter(|_| missing(key)) {
            actions.push(Action {
                reason: Reason::OptionCopied,
                ..Action::added(format!("annotations.{key}"), value)
            });
            changes.annotations.push((key, value.to_owned()));
        }
    }
}

fn is_windows(spec: &PodSpec<'_>) -> bool {
    let os = spec.os.present().and_then(|os| os.name.present());
    let selected = spec.node_selector.present().and_then(|labels| labels.get("kubernetes.io/os"));
    [os, selected.and_then(Slot::present)].into_iter().flatten().any(|os| &**os == "windows")
}

/// Whether a Pod has rank 0, from the labels and variables that ascend-operator writes (`pod.go`, `env.go`).
///
/// A Pod without a sign of a job is rank 0. A Volcano Pod without a rank isn't: the first task of its job has the ports
/// already.
fn pod_is_rank_zero(pod: &Template<'_>) -> bool {
    let metadata = pod.metadata.present();
    let label = |key| metadata.and_then(|metadata| metadata.label(key));
    if label(labels::KUBEFLOW_JOB_ROLE) == Some("master") {
        return true;
    }
    if let Some(replica_type) = label(labels::KUBEFLOW_REPLICA_TYPE).or_else(|| label(labels::REPLICA_TYPE)) {
        return workload::is_rank_zero_type(replica_type);
    }
    let containers = pod.spec.present().map_or(&[][..], |spec| spec.containers.items());
    let env = |name| containers.iter().find_map(|container| container.env_value(name));
    match (env(names::MS_ROLE), env(names::RANK)) {
        (Some(role), _) => role == "MS_SCHED",
        (None, Some(rank)) => rank == "0",
        (None, None) => {
            let annotation = metadata.and_then(|metadata| metadata.annotation(JOB_COMPLETION_INDEX));
            match labels::POD_INDICES.into_iter().find_map(label).or(annotation) {
                Some(index) => index == "0",
                None => label(labels::VOLCANO_JOB_NAME).is_none(),
            }
        }
    }
}
