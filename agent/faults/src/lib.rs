//! The fault pipeline of the node agent.
//!
//! ```text
//! sources ─updates─▶ FaultTracker ─▶ faults, each with its phase ◀─ State (state.json)
//!                                      │ settling, device plugin, preflight, backoff
//! statistic-fault-info ─Observed─▶ Reconciler ─▶ one batch in flight ─▶ transports ─▶ ClusterD
//! ```
//!
//! `swansong-fault-model` has the pure parts, the tracker and the reconciler. This crate connects them with the sources, the
//! disk, the API server and ClusterD.

mod classification;
mod clock;
mod cluster;
mod condition;
mod config_map;
mod events;
mod levels;
mod metrics;
mod outcomes;
mod peers;
mod pipeline;
mod pod;
mod preflight;
mod processes;
mod public;
mod sender;
pub mod sources;
mod state;
mod status;

#[cfg(test)]
mod simulation;

pub use self::clock::{Clock, unix_millis};
pub use self::cluster::{Cluster, answered};
pub use self::condition::{CONDITION, ConditionState, ConditionStatus};
pub use self::events::FaultEvents;
pub use self::levels::{LevelSettings, LevelWatch, Levels};
pub use self::metrics::Metrics;
pub use self::peers::{NPU_RESOURCES, RANK, share};
pub use self::pipeline::{Inputs, Outputs, Parts, Queue, run};
pub use self::pod::{DumpSettings, NpuPod, Owner, PodReference};
pub use self::preflight::PodGroup;
pub use self::processes::{Activity, PodActivity, Processes, Renamed};
pub use self::sender::{ConfigMapTransport, Gateway, Route, Transports};
pub use self::status::Status;
