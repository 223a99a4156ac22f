//! The kinds of workload.

/// A kind of object that holds pod templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkloadKind {
    /// core/v1 Pod; the object is its own template.
    Pod,
    /// mindxdl.gitee.com AscendJob, run by ascend-operator.
    AscendJob,
    /// batch.volcano.sh Job, run by Volcano's job controller.
    VolcanoJob,
    /// Deployment of the group apps.
    Deployment,
    /// StatefulSet of the group apps.
    StatefulSet,
    /// Job of the group batch.
    Job,
    /// CronJob of the group batch.
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
    /// those of its Job. For a Deployment or StatefulSet Volcano (up to 1.9) copies none of them, so
    /// ClusterD doesn't see the strategy.
    pub const fn strategy_reaches_mindcluster(self) -> bool {
        matches!(self, Self::AscendJob | Self::VolcanoJob)
    }
}
