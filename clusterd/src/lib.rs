//! ClusterD's public fault API: what may be sent, how, and what it says of it.
//!
//! - [`public_fault`]: a fault as ClusterD takes it, and the rules that it checks.
//! - [`reset_config`]: the ConfigMap in which it notes a job's lost ranks.
//! - [`sink`]: whoever takes batches of them.

pub mod public_fault;
pub mod reset_config;
pub mod sink;

pub use self::public_fault::{Class, FaultType, PublicFault};
pub use self::sink::{SendError, Sink};
