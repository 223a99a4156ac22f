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

/// When a certificate is renewed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RenewalPolicy {
    /// After two thirds of its validity.
    #[default]
    TwoThirds,
    /// This long before its expiry, but not in the first half of its validity: a new certificate is never due at once.
    Before(Duration),
}

impl RenewalPolicy {
    /// Returns the time from which on a certificate with this validity is due for renewal.
    pub fn due(self, not_before: SystemTime, not_after: SystemTime) -> SystemTime {
        let validity = not_after.duration_since(not_before).unwrap_or_default();
        match self {
            // Both results lie between the two arguments, so neither overflows.
            Self::TwoThirds => not_before + validity / 3 * 2,
            Self::Before(remaining) => not_after - remaining.min(validity / 2),
        }
    }
}

/// Which certificates the manager issues, and when it rotates them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// DNS names that the leaf covers.
    pub dns_names: Vec<String>,
    /// Validity of a CA.
    pub ca_validity: Duration,
    /// When a CA gets a successor. At least [`Settings::settle_time`] of its validity must remain.
    pub ca_renewal: RenewalPolicy,
    /// Validity of a leaf, and so the longest time for which an earlier CA remains in the `caBundle`.
    pub leaf_validity: Duration,
    /// When a leaf is renewed.
    pub leaf_renewal: RenewalPolicy,
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
            ca_renewal: RenewalPolicy::TwoThirds,
            leaf_validity: LEAF_VALIDITY,
            leaf_renewal: RenewalPolicy::TwoThirds,
            settle_time: SETTLE_TIME,
            clock_tolerance: CLOCK_TOLERANCE,
        }
    }
}
