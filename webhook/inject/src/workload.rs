//! Finds the pod templates of each kind of workload.

pub use crate::kind::WorkloadKind;
use crate::operation::escape;
use crate::view::{Holder, Object, Slot, Template};

/// A pod template found in an object.
#[derive(Debug)]
pub struct LocatedTemplate<'o, 'a> {
    /// JSON pointer of the template in the object; empty for a Pod.
    pub path: String,
    pub template: &'o Template<'a>,
    /// Whether its pods have rank 0; `None` for a Pod, whose own fields decide.
    pub rank_zero: Option<bool>,
    /// The name of the task of a Volcano Job.
    pub task: &'o str,
    /// Number of its pods that run at a time.
    pub pods: i64,
    /// Whether only other templates of the object request NPUs.
    pub lacks_npus: bool,
}

/// The pod templates of `object`, in its own order.
///
/// Rank 0 is the replica type Master, Scheduler or Chief of an AscendJob, for which ascend-operator creates the Service;
/// the first task of a Volcano Job that requests NPUs; any pod of a kind without ranks.
pub fn templates<'o, 'a>(object: &'o Object<'a>) -> Vec<LocatedTemplate<'o, 'a>> {
    let workload = match object {
        Object::Pod(template) => {
            return vec![LocatedTemplate {
                path: String::new(),
                template,
                rank_zero: None,
                pods: 1,
                lacks_npus: false,
                task: "",
            }];
        }
        Object::Workload(workload) => workload,
    };
    let Some(spec) = workload.spec.present() else { return Vec::new() };
    let mut found = Vec::new();
    let count = |number: &Slot<i64>| number.present().copied().unwrap_or(1);
    for (replica_type, replica_spec) in spec.replica_specs.present().map_or(&[][..], |map| &map.0) {
        let Some(replica_spec) = replica_spec.present() else { continue };
        if let Some(template) = replica_spec.template.present() {
            found.push(LocatedTemplate {
                path: format!("/spec/replicaSpecs/{}/template", escape(replica_type)),
                template,
                rank_zero: Some(is_rank_zero_type(replica_type)),
                pods: count(&replica_spec.replicas),
                lacks_npus: false,
                task: "",
            });
        }
    }
    let requests_npu = |task: &Holder<'_>| task.template.present().is_some_and(Template::requests_npu);
    let first = spec.tasks.items().iter().position(requests_npu).unwrap_or(0);
    for (index, task) in spec.tasks.items().iter().enumerate() {
        if let Some(template) = task.template.present() {
            let rank_zero = Some(index == first);
            let pods = count(&task.replicas);
            found.push(LocatedTemplate {
                path: format!("/spec/tasks/{index}/template"),
                template,
                rank_zero,
                pods,
                lacks_npus: false,
                task: task.name.text(),
            });
        }
    }
    if let Some(template) = spec.template.present() {
        let pods = count(&spec.replicas).max(count(&spec.parallelism));
        found.push(LocatedTemplate {
            path: "/spec/template".to_owned(),
            template,
            rank_zero: Some(true),
            pods,
            lacks_npus: false,
            task: "",
        });
    }
    let job_spec = spec.job_template.present().and_then(|job| job.spec.present());
    if let Some((spec, template)) = job_spec.and_then(|spec| Some((spec, spec.template.present()?))) {
        let path = "/spec/jobTemplate/spec/template".to_owned();
        found.push(LocatedTemplate {
            path,
            template,
            rank_zero: Some(true),
            pods: count(&spec.parallelism),
            lacks_npus: false,
            task: "",
        });
    }
    if found.iter().any(|located| located.template.requests_npu()) {
        for located in &mut found {
            located.lacks_npus = !located.template.requests_npu();
        }
    }
    found
}

/// Whether pods of this AscendJob replica type have rank 0.
pub fn is_rank_zero_type(replica_type: &str) -> bool {
    ["master", "scheduler", "chief"].iter().any(|name| replica_type.eq_ignore_ascii_case(name))
}
