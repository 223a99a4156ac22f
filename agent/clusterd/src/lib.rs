//! ClusterD's public fault API: what may be sent, how, and what it says of it.
//!
//! - [`public_fault`]: a fault as ClusterD takes it, and the rules that it checks.
//! - [`class`]: what ClusterD is to do with a fault, and the code that says so.
//! - [`mod@fault_id`]: the name of an episode.
//! - [`message`]: what is sent, faults and envelope, as protobuf and as JSON.
//! - [`sink`]: whoever takes batches of faults; [`grpc`] is ClusterD itself, [`config_map`] the way without a connection.
//! - [`process_fault`]: the fast path, a fault of ranks instead of devices.
//! - [`statistic`]: what ClusterD says stands.
//! - [`reset_config`]: the ConfigMap in which it notes a job's lost ranks.
//! - [`customization`]: the file that makes ClusterD know our faults.

pub mod class;
pub mod config_map;
pub mod customization;
pub mod fault_id;
pub mod grpc;
pub mod message;
pub mod process_fault;
pub mod proto;
pub mod public_fault;
pub mod reset_config;
pub mod sink;
pub mod statistic;
mod text;

pub use self::class::{Class, RESOURCE};
pub use self::fault_id::fault_id;
pub use self::grpc::Grpc;
pub use self::public_fault::{Draft, FaultType, Invalid, MAX_BATCH, PublicFault};
pub use self::sink::{SendError, Sink};
