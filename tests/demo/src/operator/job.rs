//! What the operator reads from an AscendJob.

use serde_json::Value;

use super::CONTAINER;

/// Why nothing can be made of a job.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// A field that every stored job has is missing.
    #[error("the job has no {0}")]
    Missing(&'static str),
    /// The real operator refuses these, too.
    #[error("the label `framework` is {0:?}; it has to be pytorch, mindspore or tensorflow")]
    Framework(Option<String>),
}

/// The training framework, from a label of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    PyTorch,
    MindSpore,
    TensorFlow,
}

/// One entry of `replicaSpecs`.
pub(super) struct Replica<'a> {
    /// As it is written in the job: `Master`, `Worker`, ….
    pub(super) kind: &'a str,
    pub(super) count: u32,
    pub(super) restart_policy: &'a str,
    pub(super) template: &'a Value,
}

pub(super) struct Job<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
    pub(super) framework: Framework,
    pub(super) scheduler: &'a str,
    pub(super) replicas: Vec<Replica<'a>>,
    metadata: &'a Value,
}

impl<'a> Job<'a> {
    pub(super) fn read(job: &'a Value) -> Result<Self, JobError> {
        let metadata = &job["metadata"];
        let text = |key: &'static str| metadata[key].as_str().ok_or(JobError::Missing(key));
        let specs = job["spec"]["replicaSpecs"].as_object().ok_or(JobError::Missing("spec.replicaSpecs"))?;
        let framework = match metadata["labels"]["framework"].as_str() {
            Some("pytorch") => Framework::PyTorch,
            Some("mindspore") => Framework::MindSpore,
            Some("tensorflow") => Framework::TensorFlow,
            other => return Err(JobError::Framework(other.map(str::to_owned))),
        };
        Ok(Self {
            name: text("name")?,
            namespace: text("namespace")?,
            uid: text("uid")?,
            framework,
            scheduler: job["spec"]["schedulerName"]
                .as_str()
                .filter(|name| !name.is_empty())
                .unwrap_or("volcano"),
            replicas: specs.iter().map(|(kind, spec)| Replica::read(kind, spec)).collect(),
            metadata,
        })
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.metadata["annotations"][key].as_str()
    }

    pub(super) fn label(&self, key: &str) -> Option<&'a str> {
        self.metadata["labels"][key].as_str()
    }

    /// The replica type whose first pod is rank 0.
    pub(super) fn rank_zero(&self) -> Option<&Replica<'a>> {
        self.replicas.iter().find(|replica| replica.is_rank_zero())
    }

    /// Whether rank 0 trains, too, instead of only scheduling. Then workers count from 1.
    pub(super) fn rank_zero_has_npus(&self) -> bool {
        self.rank_zero().is_some_and(|replica| replica.npus() > 0)
    }

    /// NPUs of each training pod.
    pub(super) fn npus_per_pod(&self) -> u64 {
        let training = |replica: &&Replica| self.rank_zero_has_npus() || !replica.is_rank_zero();
        self.replicas.iter().find(training).map_or(0, Replica::npus)
    }

    /// How many pods train.
    pub(super) fn npu_pods(&self) -> u32 {
        let training = |replica: &&Replica| self.rank_zero_has_npus() || !replica.is_rank_zero();
        self.replicas.iter().filter(training).map(|replica| replica.count).sum()
    }
}

impl<'a> Replica<'a> {
    fn read(kind: &'a str, spec: &'a Value) -> Self {
        let count = spec["replicas"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
        let restart_policy = match spec["restartPolicy"].as_str() {
            // Pods know no such policy: the operator itself restarts by exit code.
            Some("ExitCode" | "") | None => "Never",
            Some(policy) => policy,
        };
        Self { kind, count, restart_policy, template: &spec["template"] }
    }

    pub(super) fn is_rank_zero(&self) -> bool {
        matches!(self.kind, "Master" | "Scheduler" | "Chief")
    }

    /// The container the operator works on, if there is one of the name.
    pub(super) fn container(&self) -> Option<&'a Value> {
        let containers = self.template["spec"]["containers"].as_array();
        containers.into_iter().flatten().find(|container| container["name"] == CONTAINER)
    }

    /// NPUs that the container requests. Limits alone don't count for the operator.
    pub(super) fn npus(&self) -> u64 {
        self.npu_resource().map_or(0, |(_, count)| count)
    }

    /// The NPU resource that the container requests, and how many.
    pub(super) fn npu_resource(&self) -> Option<(&'a str, u64)> {
        let requests = self.container()?["resources"]["requests"].as_object()?;
        let (name, quantity) = requests.iter().find(|(name, _)| name.starts_with("huawei.com/Ascend"))?;
        // Quantities are stored as they were written: 8 or "8".
        let count = quantity.as_u64().or_else(|| quantity.as_str()?.parse().ok())?;
        Some((name, count))
    }
}
