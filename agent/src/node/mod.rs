//! The edge to the API server: this node and its pods read, what is decided written.
//!
//! Everything is level-triggered. A watch that falls silent, a write that fails, an API server that isn't there yet
//! only make the next comparison of what is with what is shown come later.

mod api;
mod config_map;
mod events;
mod follow;
mod object;
mod write;

pub use self::api::{ApiError, ApiServer};
pub(crate) use self::config_map::{Texts, follow_config_map};
pub(crate) use self::events::{About, Events, Outgoing, Recorder};
pub use self::follow::Timing;
pub(crate) use self::follow::{Change, Follow, follow};
pub use self::object::NodeState;
pub(crate) use self::write::{tell, tell_relayed, toggle_taint};
