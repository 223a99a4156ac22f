//! What the agent writes on its Node, beside the label [`DUMP_READY`](crate::labels::DUMP_READY).

use serde::{Deserialize, Serialize};

/// Condition type: whether the node can save a dying job.
pub const DUMP_READY: &str = "DumpReady";

/// Condition type: whether the faults of the node's devices reach ClusterD.
pub const FAULTS_RELAYED: &str = "FaultsRelayed";

/// Key of the opt-in taint, with effect `NoSchedule`, of nodes that aren't ready.
pub const NOT_READY_TAINT: &str = "swansong.dev/not-ready";

/// Annotation with the boot id of the host at the last report.
pub const BOOT_ID: &str = "swansong.dev/boot-id";

/// Annotation with the time of a requested rehearsal, in milliseconds since 1970; the agent acts on a new one.
pub const REHEARSE: &str = "swansong.dev/rehearse";

/// Annotation with the [`RehearsalResult`] of the last rehearsal, as JSON.
pub const REHEARSAL: &str = "swansong.dev/rehearsal";

/// The result of a rehearsal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RehearsalResult {
    /// The value of [`REHEARSE`] that it answers.
    pub request: String,
    /// When it ended, in milliseconds since 1970.
    pub at: u64,
    /// `pass`, `fail` or `unknown`.
    pub status: String,
    /// The first step that didn't pass.
    pub message: String,
}
