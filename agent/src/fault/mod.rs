//! Faults of this node's devices.
//!
//! - [`source`]: where they are seen.
//! - [`LevelWatch`]: how this cluster classifies them.
//! - [`Clock`]: the times that the rules and the freshness of what is published go by.

mod clock;
mod levels;
pub mod source;

pub use self::clock::Clock;
pub(crate) use self::clock::millis;
pub use self::levels::{LevelWatch, Levels};
