//! What certificates are wanted, and how patiently they are changed.

use std::time::{Duration, SystemTime};

use crate::authority::{AUTHORITY_VALIDITY, LEAF_VALIDITY};

/// How long a new authority is in the `caBundle` before its leaf is served, unless told otherwise.
///
/// API servers learn of a changed webhook configuration by their watch: in milliseconds as a rule, after a minute or
/// two when a watch broke unseen and has to be found dead and made anew.
pub const SETTLE: Duration = Duration::from_mins(5);

/// How long a replica may be silent before the others no longer wait for it, unless told otherwise.
pub const REPLICA_EXPIRY: Duration = Duration::from_mins(30);

/// How far this machine's clock may be off the API server's before the API server's counts, unless told otherwise.
pub const SKEW_TOLERANCE: Duration = Duration::from_mins(5);

/// When, before its end, something is renewed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Renewal {
    /// When two thirds of its life are over.
    #[default]
    TwoThirds,
    /// So long before its end, but not in the first half of its life, lest what is new be due at once.
    Before(Duration),
}

impl Renewal {
    /// The moment from which something with this life is due.
    pub fn due(self, not_before: SystemTime, not_after: SystemTime) -> SystemTime {
        let life = not_after.duration_since(not_before).unwrap_or_default();
        match self {
            // Both bounded by `not_after`, hence no overflow.
            Self::TwoThirds => not_before + life / 3 * 2,
            Self::Before(rest) => not_after - rest.min(life / 2),
        }
    }
}

/// What certificates are wanted.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names the leaf must cover.
    pub dns_names: Vec<String>,
    /// Life of an authority.
    pub authority_validity: Duration,
    /// When an authority gets a successor. The change takes [`Settings::settle`] and [`Settings::replica_expiry`], so
    /// that much must be left of its life, and better much more.
    pub authority_renewal: Renewal,
    /// Life of a leaf.
    pub leaf_validity: Duration,
    /// When a leaf is renewed.
    pub leaf_renewal: Renewal,
    /// How long a new authority is in the `caBundle` before its leaf is served.
    pub settle: Duration,
    /// How long a replica may be silent before the others no longer wait for it; many times the interval of looks. A
    /// replica that can't reach the API server for half of that, at a time when the authority changes, may serve a
    /// leaf that isn't trusted any more until its first looks after that. (Its node is long out of the Service then.)
    pub replica_expiry: Duration,
    /// How far this machine's clock may be off the API server's before the API server's counts instead;
    /// [`Duration::MAX`] for never.
    pub skew_tolerance: Duration,
}

impl Settings {
    /// The usual lives, for these names.
    pub const fn new(dns_names: Vec<String>) -> Self {
        Self {
            dns_names,
            authority_validity: AUTHORITY_VALIDITY,
            authority_renewal: Renewal::TwoThirds,
            leaf_validity: LEAF_VALIDITY,
            leaf_renewal: Renewal::TwoThirds,
            settle: SETTLE,
            replica_expiry: REPLICA_EXPIRY,
            skew_tolerance: SKEW_TOLERANCE,
        }
    }
}
