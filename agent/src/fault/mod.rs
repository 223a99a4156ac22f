//! Faults of this node's devices.
//!
//! - [`source`]: where they are seen.

pub mod source;
