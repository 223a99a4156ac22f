//! The node agent of Swansong.
//!
//! It answers two questions: can this node save a dying job, and is the preload live in the Pods that run here? Both
//! answers come from pure functions of trees of files, so a test simulates a node of any product family by a folder.
//!
//! Modules, each of which depends only on those above it:
//!
//! - [`host`]: paths below the host root, ELF files, control groups.
//! - [`finding`]: the vocabulary of checks, reasons and reports.
//! - [`checks`]: checks of the host.
//! - [`preload`]: whether the preload is live in the Pods of this node.
//! - [`readiness`]: what the Node should show.
//! - [`config`]: the configuration file.
//! - [`node`]: the Node, its Pods and Events in the API server.
//! - [`pod_processes`]: the processes of Pods that use NPUs: connections to MindIO, checkpoints, the rank on a lost device.
//! - [`device_nodes`]: a source of faults, the device nodes of the host; [`dcmi_library`] finds the library of another one.
//! - `transports`: the transports to ClusterD that are configured.
//! - [`rehearsal`]: sends a harmless fault to ClusterD and takes it back.
//! - [`run`]: the long-running agent, which connects the others with the fault pipeline (`swansong-faults`).

pub mod checks;
pub mod config;
pub mod dcmi_library;
pub mod device_nodes;
pub mod finding;
pub mod host;
mod metrics;
pub mod node;
pub mod pod_processes;
pub mod preload;
pub mod readiness;
pub mod rehearsal;
pub mod run;
mod trainer;
mod transports;
