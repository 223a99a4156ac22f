//! Environment variables of training containers.

/// Address of the Pod, on which the TaskD Manager listens.
pub const POD_IP: &str = "POD_IP";
/// Port of MindIO's controller.
pub const TTP_PORT: &str = "TTP_PORT";
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
/// Role of a MindSpore process; `MS_SCHED` is the scheduler.
pub const MS_ROLE: &str = "MS_ROLE";
/// Rank of a PyTorch Pod.
pub const RANK: &str = "RANK";
