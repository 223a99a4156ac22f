//! Environment variables of training containers.

/// Address of the Pod, on which the TaskD Manager listens.
pub const POD_IP: &str = "POD_IP";
/// The field of the Pod that is the value of [`POD_IP`].
pub const POD_IP_FIELD: &str = "status.podIP";
/// Port of MindIO's controller.
pub const TTP_PORT: &str = "TTP_PORT";
/// Address of MindIO's controller, for the training processes of PyTorch.
pub const TTP_ADDR: &str = "TTP_ADDR";
/// Address of MindIO's controller, for the training processes of MindSpore.
pub const MS_TFT_IP: &str = "MS_TFT_IP";
/// Port of MindIO's controller, for the training processes of MindSpore.
pub const MS_TFT_PORT: &str = "MS_TFT_PORT";
/// The longest time that MindIO's controller lets a dump, or another action, take, in seconds.
pub const SAVE_LIMIT: &str = "TTP_NORMAL_ACTION_TIME_LIMIT";
/// How long MindIO's controller waits for an order of ClusterD, in seconds.
pub const ORDER_LIMIT: &str = "MINDIO_WAIT_MINDX_TIME";
/// `on` makes TaskD take part in recovery.
pub const TASKD_PROCESS_ENABLE: &str = "TASKD_PROCESS_ENABLE";
/// Libraries that ld.so loads before all others.
pub const LD_PRELOAD: &str = "LD_PRELOAD";
/// The user's `LD_PRELOAD` entry with a `valueFrom`, renamed so that the injected one can refer to it.
pub const ORIGINAL_LD_PRELOAD: &str = "SWANSONG_ORIGINAL_LD_PRELOAD";
/// `on` in a hardened set-up, where the TaskD Manager listens on a local proxy.
pub const LOCAL_PROXY_ENABLE: &str = "LOCAL_PROXY_ENABLE";
/// Set by ascend-operator on Pods of jobs whose processes can be recovered.
pub const PROCESS_RECOVER: &str = "PROCESS_RECOVER";
/// Strategies of a PyTorch job, set by ascend-operator on its Pods.
pub const HIGH_AVAILABILITY: &str = "HIGH_AVAILABILITY";
/// Strategies of a MindSpore job, set by ascend-operator on its Pods; `{TTP:1}` means `dump`.
pub const MS_ENABLE_TFT: &str = "MS_ENABLE_TFT";
/// Address of rank 0 for a PyTorch Pod, set by ascend-operator.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Address of the scheduler for a MindSpore Pod, set by ascend-operator.
pub const MS_SCHED_HOST: &str = "MS_SCHED_HOST";
/// Role of a MindSpore process; `MS_SCHED` is the scheduler.
pub const MS_ROLE: &str = "MS_ROLE";
/// Rank of a PyTorch Pod.
pub const RANK: &str = "RANK";
