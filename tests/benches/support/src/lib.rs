//! What several benchmarks share.
#![allow(missing_docs)]

mod child;
mod connection;

pub use child::ChildGuard;
pub use connection::Connection;
