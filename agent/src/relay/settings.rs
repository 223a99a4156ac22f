//! What an operator may set of the relay.

use std::time::Duration;

use swansong_clusterd::Class;

/// When what is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a fault that ends ranks has to stand. ClusterD doesn't take a kill back, and the device plugin needs up
    /// to its own interval of five seconds to tell what it knows.
    pub settle: Duration,
    /// How long a fault has to stand that is handled only where a job asks for it.
    pub settle_sub_health: Duration,
    /// Whether faults that nobody handles are told too.
    pub notices: bool,
    /// Whether a fault is taken back when the jobs that it hit have dumped, so that neither a rescheduled job nor a
    /// restarted ClusterD dies of it again.
    pub recall_after_dump: bool,
    /// Whether jobs may ask, by `swansong.dev/fast-dump`, that ClusterD is told of lost ranks directly.
    pub fast_dump: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(5),
            settle_sub_health: Duration::from_secs(30),
            notices: false,
            recall_after_dump: true,
            fast_dump: true,
        }
    }
}

impl Settings {
    pub(super) const fn settle(&self, class: Class) -> Duration {
        match class {
            Class::ChipSeparate | Class::NodeSeparate => self.settle,
            Class::ChipSubHealth | Class::NodeSubHealth => self.settle_sub_health,
            Class::Notice => Duration::ZERO,
        }
    }
}
