//! Injects the spec of one pod template.

use swansong_api::labels;
use swansong_api::record::{ContainerRecord, Record};

use super::TemplateInjection;
use crate::additions::PodAdditions;
use crate::budget::Budget;
use crate::container::{ContainerInjection, Shared};
use crate::context::{PodContext, Rank};
use crate::discovery::Discovery;
use crate::launcher_hook::LauncherHook;
use crate::manager::{self, Manager};
use crate::metadata::MetadataChanges;
use crate::node_readiness;
use crate::operation::Operation;
use crate::options::Options;
use crate::ports::Network;
use crate::reason::Reason;
use crate::report::{Action, TemplateReport, Warning};
use crate::reset_config::ResetConfig;
use crate::select::Chosen;
use crate::view::{Metadata, PodSpec};
use crate::workload::WorkloadKind;

/// The injection of one template with chosen containers, and what it changes.
pub(super) struct SpecInjection<'s, 't, 'o, 'a, 'p> {
    pub(super) template: &'s TemplateInjection<'t, 'o, 'a, 'p>,
    pub(super) rank: Rank,
    pub(super) pod: PodContext,
    pub(super) options: &'s Options<'p>,
    pub(super) spec: &'o PodSpec<'a>,
    pub(super) changes: &'s mut MetadataChanges,
    pub(super) record: &'s mut Record,
    pub(super) report: &'s mut TemplateReport,
    pub(super) operations: &'s mut Vec<Operation>,
    pub(super) warnings: &'s mut Vec<Warning>,
    pub(super) budget: &'s mut Budget,
}

impl<'o, 'a, 'p> SpecInjection<'_, '_, 'o, 'a, 'p> {
    pub(super) fn run(&mut self, chosen: &[Chosen<'o, 'a>]) {
        let mut shared = self.shared();
        let first_operation = self.operations.len();
        for chosen in chosen {
            self.container(*chosen, &mut shared);
            if self.budget.is_spent() {
                break;
            }
        }
        let mut additions = PodAdditions::default();
        let own = self.own();
        shared.hook.emit(own, self.changes, &mut additions);
        shared.discovery.emit(self.template.source, &mut additions);
        shared.reset_config.emit(&mut additions);
        self.manager(chosen, &shared.hook, first_operation, &mut additions);
        self.request_ready_nodes();
        let path = &self.template.located.path;
        additions.emit(path, self.spec, self.record, self.operations);
        self.report_hook(&shared.hook);
    }

    fn own(&self) -> Option<&'o Metadata<'a>> {
        self.template.located.template.metadata.present()
    }

    fn shared(&self) -> Shared<'o, 'p> {
        let TemplateInjection { policy, located, count, .. } = self.template;
        let wanted = self.options.reset_config.unwrap_or(policy.reset_config);
        let (job, namespace) = self.job();
        Shared {
            hook: LauncherHook::new(&policy.dump, self.pod, self.options, self.own(), self.spec, *count),
            network: Network::of(self.spec, self.rank == Rank::Zero, located.pods),
            discovery: Discovery::new(self.spec),
            reset_config: ResetConfig::new(
                wanted,
                job,
                namespace,
                self.template.kind == WorkloadKind::Pod,
                self.spec,
            ),
        }
    }

    /// Name and namespace of the job, as far as the object shows them.
    fn job(&self) -> (Option<&'o str>, Option<&'o str>) {
        const LABELS: [&str; 2] = [labels::KUBEFLOW_JOB_NAME, labels::VOLCANO_JOB_NAME];
        let (job, own) = (self.template.job, self.own());
        let name = match self.template.kind {
            WorkloadKind::Pod => {
                let label = |key| own.and_then(|own| own.label(key).or_else(|| own.annotation(key)));
                LABELS.into_iter().find_map(label)
            }
            WorkloadKind::AscendJob | WorkloadKind::VolcanoJob => job.map(|job| job.name.text()),
            _ => None,
        };
        let namespace = job.or(own).map(|metadata| metadata.namespace.text());
        (name.filter(|name| !name.is_empty()), namespace.filter(|namespace| !namespace.is_empty()))
    }

    fn container(&mut self, chosen: Chosen<'o, 'a>, shared: &mut Shared<'o, '_>) {
        let injection = ContainerInjection {
            policy: self.template.policy,
            pod: self.pod,
            options: self.options,
            chosen,
            template: (&self.template.located.path, &self.template.prefix()),
        };
        let (container, container_record) = injection.run(shared, self.operations, self.warnings);
        if container_record != ContainerRecord::default() {
            self.record.containers.insert(container.name.clone(), container_record);
        }
        self.report.containers.push(container);
        self.budget.count(self.operations, self.warnings);
    }

    fn manager(
        &mut self,
        chosen: &[Chosen<'o, 'a>],
        hook: &LauncherHook<'_>,
        first_operation: usize,
        additions: &mut PodAdditions,
    ) {
        let TemplateInjection { policy, kind, located, source, .. } = self.template;
        let Some(model) = chosen.first() else { return };
        let manager = Manager {
            policy: &policy.manager,
            kind: *kind,
            rank: self.rank,
            spec: self.spec,
            path: &located.path,
            longest_save: hook.save_limit(model.container),
        };
        let operations = &self.operations[first_operation..];
        let pointer = model.path(&located.path);
        if let Some(report) = manager.add(self.options, &pointer, source, operations, additions) {
            self.warnings.extend(manager::warning(&self.template.prefix(), &report));
            self.report.actions.push(report.action);
        }
    }

    fn request_ready_nodes(&mut self) {
        let (wanted, path) = (self.template.policy.node_readiness, &self.template.located.path);
        let prefix = self.template.prefix();
        let request =
            node_readiness::request(wanted, path, &prefix, self.spec, self.operations, self.warnings);
        if let Some(request) = request {
            self.record.node_readiness = request.record;
            self.report.actions.push(request.action);
        }
    }

    /// Reports annotations of the launcher hook that have values of the user, and what the user should know of the hook.
    fn report_hook(&mut self, hook: &LauncherHook<'_>) {
        let reason = Reason::LauncherHookDiffers;
        for key in hook.foreign_annotations(self.own()) {
            self.report.actions.push(Action::kept(format!("annotations.{key}"), None, reason));
            let message = format!(
                "annotation {key} has a value of yours, so the launcher hook may not protect the dump: remove it"
            );
            self.warn(reason, &message);
        }
        for (reason, message) in hook.warnings(self.options, self.rank != Rank::Other) {
            self.warn(reason, &message);
        }
    }

    fn warn(&mut self, reason: Reason, message: &str) {
        self.warnings.push(Warning { reason, message: format!("{}{message}", self.template.prefix()) });
    }
}
