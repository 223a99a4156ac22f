//! The node agent of Swansong.
//!
//! It answers two questions: is this node able to save a dying job, and is the preload really live in
//! the pods that run here? Both answers come from pure functions over trees of files, so that a node
//! of any product family is a folder in a test. Data flows one way:
//!
//! ```text
//! host root → look → check → finding → report
//! procfs    → snapshot of processes → judgement → settled verdict
//! ```
//!
//! - [`root`]: paths below the host root, from which no link leads out.
//! - [`check`]: the checks of the host.
//! - [`node`]: the edge to the API server.
//! - [`fault`]: faults of this node's devices.
//! - [`preload`]: whether the preload is live in the pods of this node.
//! - [`reason`]: the one vocabulary of findings.
//! - [`readiness`]: what is told of a node, and when.
//! - [`relay`]: from device faults to ClusterD.
//! - [`report`]: what is said about a node.
//! - [`run`]: the agent that keeps running.
//! - [`config`]: the YAML file that says what is demanded.

pub mod check;
pub mod config;
mod elf;
pub mod fault;
pub mod node;
pub mod preload;
pub mod readiness;
pub mod reason;
pub mod relay;
pub mod report;
pub mod root;
pub mod run;

pub use self::elf::Machine;
