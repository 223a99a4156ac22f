//! Rotation of the CA without a time at which an API server rejects a served leaf.
//!
//! ```text
//! one CA ──announce──► next CA in     ──promote──► new leaf served,  ──retire──► one CA
//!          next-ca.*   every caBundle  ca.*, tls.* previous CA in      when the last
//!          stored                      of the next every caBundle      leaf of the
//!                                      CA, after                       previous CA
//!                                      the settle                      has expired
//!                                      time
//! ```
//!
//! 1. *Announce* ([`decide()`](crate::decide())): the next CA is stored, and each replica adds it to the `caBundle`.
//!    The current leaf remains in use.
//! 2. *Promote*: a replica that has observed the next CA in every `caBundle` for the settle time takes it into use and
//!    issues a leaf. The other replicas serve that leaf once they have observed the same.
//! 3. *Retire*: a previous CA leaves the Secret and the `caBundle` when its last leaf has expired. API servers reject
//!    an expired leaf in any case, so no replica can depend on the CA, and none has to be counted.
//!
//! There is no leader: any replica may take any step, and the resource version lets one write succeed. Each step is one
//! write of one object, so a replica that dies between steps leaves a state that the others continue. Waiting is
//! measured by each replica on a monotonic clock and starts again when the replica restarts.
//!
//! When the Secret is deleted or damaged, a running replica serves its last leaf for the settle time; a replica that
//! starts then has no other leaf than the new one. Related CAs that are in a `caBundle` and not in the Secret are
//! *adopted* as previous ones.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::ca::Settings;
use crate::certificate::{CaId, Certificate};
use crate::decide::Decision;
use crate::secret_data::{MAX_PREVIOUS, PreviousCa, TrustedCas};

/// The content of the webhook configuration, as far as a rotation depends on it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedBundle {
    /// CAs in the `caBundle` of every webhook.
    pub in_all: Vec<CaId>,
    /// Related CAs in any `caBundle` that the Secret doesn't list.
    pub unlisted: Vec<Certificate>,
}

/// The observations of one replica. `tick` is always the time of its monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct RotationState {
    /// The CA of the leaf that this replica serves.
    pub serving: Option<CaId>,
    /// Since when each CA has been in every `caBundle`; `None` before the first observation.
    observed: Option<BTreeMap<CaId, Duration>>,
    unlisted: Vec<Certificate>,
}

impl RotationState {
    /// Records the content of the webhook configuration.
    pub fn record_bundle(&mut self, bundle: ObservedBundle, tick: Duration) {
        let before = self.observed.take().unwrap_or_default();
        let since = |id: CaId| {
            let since = before.get(&id).copied().unwrap_or(tick);
            (id, since)
        };
        self.observed = Some(bundle.in_all.into_iter().map(since).collect());
        self.unlisted = bundle.unlisted;
    }

    /// Returns whether this CA has been in every `caBundle` for the settle time.
    fn has_settled(&self, ca: &CaId, tick: Duration, settings: &Settings) -> bool {
        let since = self.observed.as_ref().and_then(|observed| observed.get(ca));
        since.is_some_and(|since| tick.saturating_sub(*since) >= settings.settle_time)
    }

    /// Returns whether to serve a leaf of this CA instead of the one that is served.
    pub fn may_serve(&self, ca: &CaId, tick: Duration, settings: &Settings) -> bool {
        let Some(serving) = &self.serving else { return true };
        let no_longer_trusted =
            self.observed.as_ref().is_some_and(|observed| !observed.contains_key(serving));
        serving == ca || no_longer_trusted || self.has_settled(ca, tick, settings)
    }

    /// Returns the next step of a rotation for a valid Secret, if one is due.
    pub fn next_step(
        &self,
        cas: &TrustedCas,
        now: SystemTime,
        tick: Duration,
        settings: &Settings,
    ) -> Option<Decision> {
        let is_missing = |ca: &&Certificate| !cas.lists(&ca.id) && !ca.has_expired(now);
        let missing: Vec<Certificate> = self.unlisted.iter().filter(is_missing).cloned().collect();
        if !missing.is_empty() || cas.previous.iter().any(|ca| ca.trusted_until.is_none()) {
            return Some(Decision::Adopt(missing));
        }
        let is_expired = |ca: &&PreviousCa| {
            ca.certificate.has_expired(now) || ca.trusted_until.is_some_and(|until| now >= until)
        };
        let expired: Vec<CaId> =
            cas.previous.iter().filter(is_expired).map(|ca| ca.certificate.id.clone()).collect();
        if !expired.is_empty() {
            return Some(Decision::Retire(expired));
        }
        let next = cas.next.as_ref()?;
        let may_promote = self.has_settled(&next.id, tick, settings) && cas.previous.len() < MAX_PREVIOUS;
        may_promote.then_some(Decision::Promote(None))
    }
}
