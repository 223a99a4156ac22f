//! What is known of device faults, without any I/O or clock.
//!
//! - [`Code`]: the driver's and MindCluster's fault codes.
//! - [`Level`]: how MindCluster handles a fault.
//! - [`Seen`]: what a source says.
//! - [`Classifier`]: from a code to its level; [`Choice`]: which classification counts.
//! - [`DriverFault`]: what has no code of the driver's.
//! - [`Rules`], [`Escalation`]: what repeats or lasts is graver.
//! - [`device_plugin`]: what the device plugin publishes of this node.

mod classify;
mod code;
pub mod device_plugin;
mod level;
mod own;
mod reading;
mod rules;
mod seen;

pub use self::classify::{Because, Choice, Classifier, Found, NETWORK_CODES, News, Origin};
pub use self::code::{Code, NotACode};
pub use self::level::Level;
pub use self::own::{CARD_DROP, DriverFault};
pub use self::reading::{Broken, Warning};
pub use self::rules::{Escalation, Frequency, Lasting, Raise, RuleError, Rules, Why};
pub use self::seen::{Assertion, Event, Seen, Severity, Standing, Subject};
