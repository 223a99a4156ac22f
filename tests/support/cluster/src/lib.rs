//! A real Kubernetes on one machine, for Swansong's tests and demo.
//!
//! Two tiers share one launcher: [`Tier::Api`] is etcd and an API server and needs no privileges,
//! [`Tier::Node`] adds the controllers and one node that runs pods, and needs root. Both are real
//! programs built from source, so what a test sees is what a cluster does.
//!
//! ```no_run
//! # async fn test() -> Result<(), swansong_testcluster::Error> {
//! use swansong_testcluster::{Tier, shared};
//!
//! let cluster = shared(Tier::Api).await?;
//! let namespace = cluster.namespace("admission").await?;
//! let client = cluster.client().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A cluster lives as long as the process that started it and leaves nothing behind, however that
//! process ends: see the README beside this crate.

mod audit;
mod cache;
mod cluster;
mod containerd;
mod control_plane;
mod error;
mod events;
pub mod image;
mod info;
mod kubeconfig;
mod locate;
mod network;
#[doc(hidden)]
pub mod node;
mod options;
mod pki;
pub mod prerequisites;
#[doc(hidden)]
pub mod process;
#[doc(hidden)]
pub mod programs;
#[doc(hidden)]
pub mod supervisor;
mod tier;
mod wait;
mod workdir;

pub use audit::{AuditEvent, ObjectReference, ResponseStatus, User};
pub use cluster::{Cluster, shared, shared_if_possible};
pub use error::Error;
pub use events::expect_events;
pub use info::{Info, NodeInfo};
pub use options::Options;
pub use tier::Tier;
pub use wait::eventually;
