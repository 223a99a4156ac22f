//! TCP ports of a training job.

/// Default of [`TTP_PORT`](crate::env::TTP_PORT), which MindSpeed-LLM has built in.
pub const TTP: u16 = 8000;
/// Name of the container port [`TTP`].
pub const TTP_NAME: &str = "ttp-port";
/// Port of the TaskD Manager, fixed in TaskD.
pub const TASKD: u16 = 9601;
/// Name of the container port [`TASKD`].
pub const TASKD_NAME: &str = "taskd-port";
/// Port of TaskD's proxy on other ranks, fixed in TaskD.
pub const TASKD_PROXY: u16 = 9602;
