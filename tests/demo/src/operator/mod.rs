//! A small stand-in for ascend-operator.
//!
//! It creates the same objects for an AscendJob as the real one (facts taken from MindCluster `22bb3d98` and
//! from Pods that the real one created): the rank-0 Service, once, from the ports of the *job's*
//! template, and Pods that carry the template's own labels and annotations but none of the job's.
//! What it leaves out has no part in a dying checkpoint: PodGroups, rank tables, restarts, status,
//! virtual NPUs and inference jobs.

mod controller;
mod env;
mod job;
mod objects;

pub use controller::{ControllerError, ascend_jobs, reconcile, run};
pub use job::JobError;
pub use objects::{Addresses, pods, rank_zero_service};

/// The container that ascend-operator works on.
pub const CONTAINER: &str = "ascend";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
