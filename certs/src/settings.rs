//! Validity, renewal and rotation settings.

use std::time::{Duration, SystemTime};

use crate::ca::{CA_VALIDITY, LEAF_VALIDITY};

/// The default time for which a new CA is in the `caBundle` before its leaf is served.
///
/// API servers watch webhook configurations. A change reaches them within milliseconds as a rule, and within a minute
/// or two when a watch broke without notice and has to be established again.
pub const SETTLE_TIME: Duration = Duration::from_mins(5);

/// The default difference between this machine's clock and the API server's from which on the latter is used.
pub const CLOCK_TOLERANCE: Duration = Duration::from_mins(5);

/// Returns when a certificate is due for renewal: after two thirds of its validity.
pub(crate) fn renewal_due(not_before: SystemTime, not_after: SystemTime) -> SystemTime {
    not_before + not_after.duration_since(not_before).unwrap_or_default() / 3 * 2
}

/// Which certificates the manager issues, and when it rotates them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// DNS names that the leaf covers.
    pub dns_names: Vec<String>,
    /// Validity of a CA. A third of it must be longer than [`Settings::settle_time`].
    pub ca_validity: Duration,
    /// Validity of a leaf, and so the longest time for which an earlier CA remains in the `caBundle`.
    pub leaf_validity: Duration,
    /// How long a new CA is in the `caBundle` before its leaf is served.
    pub settle_time: Duration,
    /// The difference between clocks that is tolerated: beyond it the API server's clock is used instead of this
    /// machine's ([`Duration::MAX`]: never), and an earlier CA remains trusted this long after its last leaf expired.
    pub clock_tolerance: Duration,
}

impl Settings {
    /// The defaults for these DNS names.
    pub const fn new(dns_names: Vec<String>) -> Self {
        Self {
            dns_names,
            ca_validity: CA_VALIDITY,
            leaf_validity: LEAF_VALIDITY,
            settle_time: SETTLE_TIME,
            clock_tolerance: CLOCK_TOLERANCE,
        }
    }
}
