//! The whole chain of a dying checkpoint on a real Kubernetes.
//!
//! Everything that needs NPUs or MindCluster has a stand-in here; everything that Swansong and
//! Kubernetes do is the real thing. The binary `demo` shows the chain to people, the node-tier
//! tests assert it.
//!
//! - [`operator`]: ascend-operator, as far as it matters: one Service and the Pods of a job.
//! - [`training_image`]: a container image with two stand-in libraries and a training process that
//!   prints what it sees; [`training_log`] parses that.
//! - [`definitions`], [`install`]: AscendJob and Swansong brought into a test cluster.
//! - [`evidence`], [`proof`]: what a job shows when it runs, and whether the chain holds.
//! - [`python_image`], [`training`], [`agents`]: jobs of fakes that dump, and the agent that reports the fault.
//! - [`tour`]: what `make demo` shows.

pub mod agents;
pub mod definitions;
pub mod evidence;
pub mod install;
pub mod operator;
pub mod proof;
pub mod python_image;
pub mod screen;
pub mod tour;
pub mod training;
pub mod training_image;
pub mod training_log;
mod view;

/// An AscendJob of two pods that asks for a dying checkpoint and does nothing else for it.
pub const JOB: &str = include_str!("../job.yaml");

/// An error of a file or process operation.
fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> swansong_testcluster::Error {
    let what = what.into();
    move |source| swansong_testcluster::Error::Io { what, source }
}
