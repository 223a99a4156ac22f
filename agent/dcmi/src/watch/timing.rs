//! The intervals and timeouts of the watching process.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two attempts to initialize the API.
    pub init_interval: Duration,
    /// After which the process exits if the API isn't initialized.
    pub init_timeout: Duration,
    /// Between two attempts to subscribe.
    pub subscribe_interval: Duration,
    /// Between two polls of a device without events or with faults.
    pub poll: Duration,
    /// Between two polls of any other device.
    pub repoll: Duration,
    /// Between two heartbeats.
    pub alive: Duration,
}

/// The values of MindCluster's device plugin; see `ascend-common/devmanager/devmanager_common.go` for initialization.
impl Default for Timing {
    fn default() -> Self {
        Self {
            init_interval: Duration::from_secs(10),
            init_timeout: Duration::from_mins(10),
            subscribe_interval: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            repoll: Duration::from_mins(5),
            alive: Duration::from_secs(1),
        }
    }
}
