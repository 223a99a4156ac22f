//! The gateway: agents post faults to it over HTTPS, and it sends them to ClusterD in full batches.
//!
//! ClusterD accepts one message a second from all agents together. When a switch fails, a thousand nodes report faults at
//! once, which would take a quarter of an hour in single messages. The gateway stores nothing: it answers a request after
//! ClusterD has accepted its faults, and the agent keeps them until then.
//!
//! - [`client`]: the agent's side.
//! - [`http`]: `POST /v1/faults`, health and metrics.
//! - [`auth`]: authenticates agents by their service account tokens.
//! - [`dispatcher`]: sends batches from the [`queue`], within the [`rate_limit`].
//! - [`problem`]: error responses and how the agent handles them.

use std::time::Duration;

use swansong_runtime::http::{Limits, Timeouts};

pub mod auth;
pub mod client;
pub mod dispatcher;
pub mod http;
pub mod metrics;
pub mod problem;
pub mod queue;
pub mod rate_limit;

/// The audience of the agents' tokens.
pub const AUDIENCE: &str = "swansong-gateway";
/// The path that faults are posted to.
pub const PATH: &str = "/v1/faults";
/// Limits on what agents may use.
pub const LIMITS: Limits = Limits {
    connections: 4096,
    pending: 4096,
    min_idle: Duration::from_secs(1),
    timeouts: Timeouts {
        handshake: Duration::from_secs(5),
        idle: Duration::from_secs(10),
        head: Duration::from_secs(10),
        request: Duration::from_mins(2),
        write: Duration::from_secs(10),
    },
};
/// The limit for a request body, in bytes. A hundred of the longest faults need half of it.
pub const MAX_BODY: usize = 1 << 20;
