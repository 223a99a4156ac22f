//! ClusterD's public fault API: messages, ConfigMaps and the rules that ClusterD checks. No I/O and no clock; the gRPC
//! client is the crate `swansong-clusterd-client`.
//!
//! - [`public_fault`]: a fault as ClusterD accepts it, and the rules that it has to follow.
//! - [`class`]: how ClusterD handles a fault, and the code for it.
//! - [`message`]: a batch of faults with its envelope.
//! - [`transport`]: the interface to deliver batches.
//! - [`config_map`]: the ConfigMap that ClusterD reads faults from.
//! - [`statistic`]: the faults that ClusterD has registered.
//! - [`reset_config`]: the ConfigMap in which it records a job's lost ranks.
//! - [`customization`]: the file that registers Swansong's faults with ClusterD.

pub mod class;
pub mod config_map;
pub mod customization;
pub mod message;
pub mod public_fault;
pub mod reset_config;
pub mod statistic;
mod text;
pub mod transport;

pub use self::class::{Class, RESOURCE};
pub use self::public_fault::{FaultType, InvalidFault, MAX_BATCH, PublicFault};
pub use self::transport::{SendError, Transport};
