//! A fake ClusterD: it accepts public faults as the real one does, with every documented limit and unexpected behaviour,
//! and records them in a [`Ledger`], so that tests can check what the real one would have done.
//!
//! - [`rules`]: validation of messages and faults.
//! - [`bucket`]: the rate limit.
//! - [`whitelist`]: accepted senders and fault codes.
//! - [`core`]: the state and the handling of messages, without input and output.
//! - [`server`]: the gRPC server, which can be made to fail.
//! - [`cluster`]: ClusterD's ConfigMaps on a real API server.
//!
//! Sources are `clusterd/pkg/application/publicfault`, `clusterd/pkg/domain/publicfault` and `clusterd/pkg/interface/grpc`
//! of MindCluster, and measurements of the real program.

pub mod bucket;
pub mod cluster;
pub mod connection;
pub mod core;
pub mod ledger;
pub mod route;
pub mod rules;
pub mod server;
pub mod whitelist;

pub use self::core::{Core, Settings};
pub use self::ledger::{Effect, Ledger};
pub use self::server::{Behaviour, FakeClusterd};
