//! Labels on jobs, Pods and nodes.

/// Label of a node, kept by the agent: `true`, `false` or `unknown`.
pub const DUMP_READY: &str = "swansong.dev/dump-ready";

/// Label of a job and its PodGroup; ClusterD recovers the job only if it is `on`.
pub const PROCESS_RECOVER_ENABLE: &str = "process-recover-enable";

/// Label of a job: how Volcano's plugin deletes the Pods of a job with a fault.
pub const FAULT_SCHEDULING: &str = "fault-scheduling";
/// Label of a job: what is done about degraded devices; `hotSwitch` adds a strategy to the job's own.
pub const SUB_HEALTHY_STRATEGY: &str = "subHealthyStrategy";
/// Label of an AscendJob: `pytorch`, `mindspore` or `tensorflow`.
pub const FRAMEWORK: &str = "framework";

/// Replica type of a Pod, written by ascend-operator.
pub const REPLICA_TYPE: &str = "replica-type";
/// The replica type under Kubeflow's name.
pub const KUBEFLOW_REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
/// `master` on the Pod of rank 0.
pub const KUBEFLOW_JOB_ROLE: &str = "training.kubeflow.org/job-role";
/// Name of the job of an AscendJob's Pod.
pub const KUBEFLOW_JOB_NAME: &str = "training.kubeflow.org/job-name";
/// Labels, some of them also annotations, with the index of a Pod in its job, of which the Pod with index 0 has rank 0. The
/// index of a LeaderWorkerSet counts in its group, and its Pods also have that of a StatefulSet.
pub const POD_INDICES: [&str; 6] = [
    LWS_WORKER_INDEX,
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
];
/// Index of a Pod in its group of a LeaderWorkerSet.
pub const LWS_WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// Name of a Pod of a StatefulSet, which ends with its index. Clusters before 1.28 have no label with the index alone.
pub const STATEFUL_SET_POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Index of a Pod in its task of a Volcano Job; an annotation, and a label in later versions of Volcano.
pub const VOLCANO_TASK_INDEX: &str = "volcano.sh/task-index";
/// Name of the task of a Volcano Job's Pod; an annotation, and a label in later versions of Volcano.
pub const VOLCANO_TASK_NAME: &str = "volcano.sh/task-spec";
/// Name of the Volcano Job of a Pod.
pub const VOLCANO_JOB_NAME: &str = "volcano.sh/job-name";
/// What Volcano writes on a Pod, as annotations and in later versions also as labels.
pub const OF_VOLCANO: [&str; 3] = [VOLCANO_JOB_NAME, VOLCANO_TASK_NAME, VOLCANO_TASK_INDEX];
