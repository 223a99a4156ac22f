//! Injects one pod template.

mod spec;

use swansong_api::annotations::{INJECTED, OPTIONS, RECOVER_STRATEGY};
use swansong_api::record::Record;
use swansong_api::strategy::Strategies;
use swansong_api::{env as names, labels};

use self::spec::SpecInjection;
use crate::budget::Budget;
use crate::context::{PodContext, Rank};
use crate::metadata::MetadataChanges;
use crate::options::Options;
use crate::policy::{DumpStrategy, Policy};
use crate::reason::Reason;
use crate::report::{Action, Outcome, TemplateReport, Warning};
use crate::select::choose;
use crate::source::Source;
use crate::strategies::TemplateRequest;
use crate::view::{Metadata, PodSpec, Slot, Template};
use crate::workload::{self, LocatedTemplate, WorkloadKind};

pub(super) struct TemplateInjection<'t, 'o, 'a, 'p> {
    pub(super) kind: WorkloadKind,
    pub(super) located: &'t LocatedTemplate<'o, 'a>,
    pub(super) job: Option<&'o Metadata<'a>>,
    pub(super) policy: &'p Policy,
    /// Number of templates of the object.
    pub(super) count: usize,
    pub(super) source: &'t Source<'t>,
}

impl TemplateInjection<'_, '_, '_, '_> {
    pub(super) fn run(
        &self,
        request: TemplateRequest,
        outcome: &mut Outcome,
        budget: &mut Budget,
    ) -> TemplateReport {
        let LocatedTemplate { path, template, lacks_npus, .. } = self.located;
        let rank = self.located.rank_zero.map_or_else(|| pod_rank(template), of_template);
        let rank_zero = rank == Rank::Zero;
        let mut report = TemplateReport {
            path: path.clone(),
            rank_zero,
            skip: None,
            actions: Vec::new(),
            containers: Vec::new(),
        };
        if !request.triggered {
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
                let injected = own.and_then(|own| Record::parse(own.annotation(INJECTED)?).ok());
                let chosen = choose(spec, &options, *lacks_npus, &injected.unwrap_or_default(), warnings);
                if !chosen.is_empty() {
                    let mut injection = SpecInjection {
                        template: self,
                        rank,
                        pod: self.context(rank, request.dump),
                        options: &options,
                        spec,
                        changes: &mut changes,
                        record: &mut record,
                        report: &mut report,
                        operations,
                        warnings,
                        budget,
                    };
                    injection.run(&chosen);
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

    fn context(&self, rank: Rank, dump: DumpStrategy) -> PodContext {
        let framework = self.job.and_then(|job| job.label(labels::FRAMEWORK));
        PodContext {
            kind: self.kind,
            rank: if self.kind == WorkloadKind::VolcanoJob {
                Rank::ByIndex { named: workload::is_rank_zero_type(self.located.task) }
            } else {
                rank
            },
            has_other_ranks: rank == Rank::Other || self.located.pods > 1,
            is_mindspore: framework == Some("mindspore"),
            dump,
        }
    }

    /// Prefix of messages about the template; empty for kinds with one template.
    pub(super) fn prefix(&self) -> String {
        let part = self.located.path.rsplit('/').nth(1).unwrap_or_default();
        match self.kind {
            WorkloadKind::AscendJob => format!("replica {part}, "),
            WorkloadKind::VolcanoJob => format!("task {part}, "),
            _ => String::new(),
        }
    }
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

const fn of_template(rank_zero: bool) -> Rank {
    if rank_zero { Rank::Zero } else { Rank::Other }
}

/// The rank of a Pod, from the labels and variables that ascend-operator writes (`pod.go`, `env.go`), and from the indices
/// that other controllers write.
///
/// A Pod without a sign of a job is rank 0. The index of a Volcano Pod counts in its task, and the Pod doesn't show which
/// task is the first.
fn pod_rank(pod: &Template<'_>) -> Rank {
    let metadata = pod.metadata.present();
    let label = |key| metadata.and_then(|metadata| metadata.label(key));
    let annotation = |key| metadata.and_then(|metadata| metadata.annotation(key));
    if label(labels::KUBEFLOW_JOB_ROLE) == Some("master") {
        return Rank::Zero;
    }
    if let Some(replica_type) = label(labels::KUBEFLOW_REPLICA_TYPE).or_else(|| label(labels::REPLICA_TYPE)) {
        return of_template(workload::is_rank_zero_type(replica_type));
    }
    let containers = pod.spec.present().map_or(&[][..], |spec| spec.containers.items());
    let env = |name| containers.iter().find_map(|container| container.env_value(name));
    match (env(names::MS_ROLE), env(names::RANK)) {
        (Some(role), _) => return of_template(role == "MS_SCHED"),
        (None, Some(rank)) => return of_template(rank == "0"),
        (None, None) => {}
    }
    let either = |key| label(key).or_else(|| annotation(key));
    let task_index = either(labels::VOLCANO_TASK_INDEX);
    let task = either(labels::VOLCANO_TASK_NAME);
    if task_index.is_some_and(|index| index != "0") {
        return Rank::Other;
    }
    if let Some(index) = either(labels::LWS_WORKER_INDEX) {
        return of_template(index == "0");
    }
    // An index may count the Jobs of a JobSet, so each of several has to be 0.
    let ordinal = label(labels::STATEFUL_SET_POD_NAME).and_then(|name| Some(name.rsplit_once('-')?.1));
    let mut indices = labels::POD_INDICES.into_iter().filter_map(either).chain(ordinal).peekable();
    if indices.peek().is_some() {
        return of_template(indices.all(|index| index == "0"));
    }
    if task_index.or(task).or_else(|| either(labels::VOLCANO_JOB_NAME)).is_none() {
        return Rank::Zero;
    }
    if task_index.is_some() && task.is_some_and(workload::is_rank_zero_type) {
        Rank::Zero
    } else {
        Rank::Unknown
    }
}
