//! The gRPC client of ClusterD's public fault API.

mod client;
pub mod proto;

pub use self::client::{ADDRESS, AddressError, GrpcClient, public_fault_request};
