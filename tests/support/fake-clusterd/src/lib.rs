//! A stand-in ClusterD: it takes public faults as the real one does, with every documented limit and oddity, and keeps a
//! ledger of what it took, so that a test can tell what the real one would have made of what a client sent.
//!
//! - [`rules`]: what is a valid message and a valid fault.
//! - [`bucket`]: how much may be sent.
//! - [`whitelist`]: who may send and which codes there are.
//! - [`core`]: what becomes of a message; pure, time comes in.
//! - [`server`]: the gRPC server, with faults of its own on demand.
//! - [`cluster`]: the ConfigMaps that it reads and writes, on a real API server.
//!
//! Sources are `clusterd/pkg/application/publicfault`, `clusterd/pkg/domain/publicfault` and `clusterd/pkg/interface/grpc`
//! of MindCluster, and what was measured on the real program.

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
pub use self::server::{Behaviour, StandIn};
