//! What is known of device faults, without any I/O or clock.
//!
//! - [`Code`]: the driver's and MindCluster's fault codes.
//! - [`Level`]: how MindCluster handles a fault.
//! - [`Seen`]: what a source says.

mod code;
mod level;
mod seen;

pub use self::code::{Code, NotACode};
pub use self::level::Level;
pub use self::seen::{Assertion, Event, Seen, Severity, Standing, Subject};
