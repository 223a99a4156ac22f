//! The whole chain of a dying checkpoint on a real Kubernetes.
//!
//! Everything that needs NPUs or MindCluster has a stand-in here; everything that Swansong and
//! Kubernetes do is the real thing. The binary `demo` shows the chain to people, the node-tier
//! tests assert it.
//!
//! - [`operator`]: ascend-operator, as far as it matters: one Service and the Pods of a job.
//! - [`training_image`]: a container image with two stand-in libraries and a training process that
//!   tells what it sees.

pub mod operator;
pub mod training_image;
