//! Where pod templates live in each kind of workload.

use crate::operation::escape;
use crate::view::{Object, Slot, Template};

/// A kind of object that holds pod templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkloadKind {
    /// core/v1 Pod; the object is its own template.
    Pod,
    /// mindxdl.gitee.com AscendJob, run by ascend-operator.
    AscendJob,
    /// batch.volcano.sh Job, run by Volcano's job controller.
    VolcanoJob,
    /// apps Deployment.
    Deployment,
    /// apps StatefulSet.
    StatefulSet,
    /// batch Job.
    Job,
    /// batch CronJob.
    CronJob,
}

impl WorkloadKind {
    /// The kind named by `apiVersion` and `kind`, in any version of its group.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Self::of_group(group, kind)
    }

    /// The kind named by an API group (empty for core) and `kind`.
    pub fn of_group(group: &str, kind: &str) -> Option<Self> {
        Some(match (group, kind) {
            ("", "Pod") => Self::Pod,
            ("mindxdl.gitee.com", "AscendJob") => Self::AscendJob,
            ("batch.volcano.sh", "Job") => Self::VolcanoJob,
            ("apps", "Deployment") => Self::Deployment,
            ("apps", "StatefulSet") => Self::StatefulSet,
            ("batch", "Job") => Self::Job,
            ("batch", "CronJob") => Self::CronJob,
            _ => return None,
        })
    }

    /// Whether MindCluster reads `recover-strategy` from this kind's own annotations.
    ///
    /// ascend-operator copies an AscendJob's annotations to the PodGroup, and Volcano's job controller
    /// those of its Job; for a Deployment or StatefulSet Volcano (up to 1.9) copies none of them, so
    /// that ClusterD never sees the strategy.
    pub const fn strategy_reaches_mindcluster(self) -> bool {
        matches!(self, Self::AscendJob | Self::VolcanoJob)
    }
}

/// A pod template found in an object.
#[derive(Debug)]
pub struct Located<'o, 'a> {
    /// JSON pointer of the template in the object; empty for a Pod.
    pub path: String,
    /// The template.
    pub template: &'o Template<'a>,
    /// Whether its pods hold rank 0, as far as the workload itself tells; a Pod tells by its own fields.
    pub rank_zero: Option<bool>,
    /// How many pods are made of it to run at once.
    pub pods: i64,
}

/// The pod templates of `object`, in its own order.
///
/// Rank 0 is what ascend-operator builds the Service for: replica type Master, Scheduler or Chief of an
/// AscendJob; the first task of a Volcano Job; any pod of a kind without ranks.
pub fn templates<'o, 'a>(object: &'o Object<'a>) -> Vec<Located<'o, 'a>> {
    let workload = match object {
        Object::Pod(template) => {
            return vec![Located { path: String::new(), template, rank_zero: None, pods: 1 }];
        }
        Object::Workload(workload) => workload,
    };
    let Some(spec) = workload.spec.present() else { return Vec::new() };
    let mut found = Vec::new();
    let count = |number: &Slot<i64>| number.present().copied().unwrap_or(1);
    for (replica_type, replica_spec) in spec.replica_specs.present().map_or(&[][..], |map| &map.0) {
        let Some(replica_spec) = replica_spec.present() else { continue };
        if let Some(template) = replica_spec.template.present() {
            found.push(Located {
                path: format!("/spec/replicaSpecs/{}/template", escape(replica_type)),
                template,
                rank_zero: Some(is_rank_zero_type(replica_type)),
                pods: count(&replica_spec.replicas),
            });
        }
    }
    for (index, task) in spec.tasks.items().iter().enumerate() {
        if let Some(template) = task.template.present() {
            let rank_zero = Some(index == 0);
            let pods = count(&task.replicas);
            found.push(Located { path: format!("/spec/tasks/{index}/template"), template, rank_zero, pods });
        }
    }
    if let Some(template) = spec.template.present() {
        let pods = count(&spec.replicas).max(count(&spec.parallelism));
        found.push(Located { path: "/spec/template".to_owned(), template, rank_zero: Some(true), pods });
    }
    let job_spec = spec.job_template.present().and_then(|job| job.spec.present());
    if let Some((spec, template)) = job_spec.and_then(|spec| Some((spec, spec.template.present()?))) {
        let path = "/spec/jobTemplate/spec/template".to_owned();
        found.push(Located { path, template, rank_zero: Some(true), pods: count(&spec.parallelism) });
    }
    found
}

/// Whether pods of this AscendJob replica type hold rank 0.
pub fn is_rank_zero_type(replica_type: &str) -> bool {
    ["master", "scheduler", "chief"].iter().any(|name| replica_type.eq_ignore_ascii_case(name))
}
