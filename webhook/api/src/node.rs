//! What the agent writes on its Node, beside the label [`DUMP_READY`](crate::labels::DUMP_READY).

/// Condition type: whether the node can save a dying job.
pub const DUMP_READY: &str = "DumpReady";

/// Key of the opt-in taint, with effect `NoSchedule`, of nodes that aren't ready.
pub const NOT_READY_TAINT: &str = "swansong.dev/not-ready";

/// Annotation with the boot id of the host at the last report.
pub const BOOT_ID: &str = "swansong.dev/boot-id";
