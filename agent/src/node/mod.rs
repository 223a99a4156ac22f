//! The agent's Node and its Pods in the API server.
//!
//! Everything is level-triggered: after a failed write or an interrupted watch the next comparison with the observed state
//! takes place later.

mod client;
mod npu_pod;
mod object;
mod watch;
mod write;

use std::time::Duration;

use swansong_runtime::backoff::Limits;

pub use self::client::{ApiClient, ApiError};
pub(crate) use self::object::Container;
pub use self::object::{FAULTS_CONDITION, NodeState, PodObject};
pub use self::watch::{Change, watch_node, watch_pods};
pub use self::write::NodeWriter;

/// Time limits of watches and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The duration of a watch. A watch without any message for five seconds longer is restarted. The API server sends a
    /// bookmark every minute.
    pub watch: Duration,
    /// The delay between attempts.
    pub backoff: Limits,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            watch: Duration::from_secs(290),
            backoff: Limits { first: Duration::from_millis(500), max: Duration::from_secs(30) },
        }
    }
}
