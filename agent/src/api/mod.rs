//! Requests to the API server for [`fault`](crate::fault) and [`relay`](crate::relay).

mod config_map;
mod follow;
mod server;

pub(crate) use self::config_map::{Texts, follow_config_map};
pub use self::follow::Timing;
pub use self::server::{ApiError, ApiServer};
