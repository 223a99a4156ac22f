//! Applies a decision in memory: the new content of the Secret, and the events to report once it is stored. No I/O.

use std::time::SystemTime;

use crate::ca::{CaError, CertificateAuthority, IssuedCertificate};
use crate::ca_certificate::{CaCertificate, CaId};
use crate::decide::{CaReason, Decision, LeafReason, decide, leaf_not_after, read_next_ca};
use crate::event::Event;
use crate::pair::PemPair;
use crate::secret_data::{PreviousCa, RotationRequest, SecretData, StoredPair, VerifiedSecret};
use crate::settings::Settings;

/// New content for the Secret.
#[derive(Debug)]
pub struct SecretUpdate {
    /// What to store.
    pub data: SecretData,
    /// The same content, ready to use once it is stored.
    pub verified: VerifiedSecret,
    /// What to report once it is stored.
    pub events: Vec<Event>,
}

/// The result of a decision.
#[derive(Debug)]
pub enum Outcome {
    /// There is nothing to store.
    Unchanged(Box<VerifiedSecret>),
    /// This is to be stored. It may be used only after the write succeeded: another replica may have been first.
    Changed(Box<SecretUpdate>),
}

/// Issues what the decision requires. `stored` is the content that the decision is about.
pub fn apply(
    decision: Decision,
    name: &str,
    stored: Option<&SecretData>,
    now: SystemTime,
    settings: &Settings,
) -> Result<Outcome, CaError> {
    let context = Context { name, now, settings };
    let data = stored.cloned().unwrap_or_default();
    let replace_rejected = |error: CaError| match error {
        // The same CA would be rejected again.
        error @ CaError::Rejected { .. } => {
            context.issue_all(stored.cloned().unwrap_or_default(), &error.into())
        }
        error => Err(error),
    };
    let update = match decision {
        Decision::Keep(verified) => return Ok(Outcome::Unchanged(verified)),
        Decision::IssueLeaf { ca, reason } => {
            context.issue_leaf(&ca, data, &reason).or_else(replace_rejected)?
        }
        Decision::Announce { reason, .. } => context.announce(data, &reason)?,
        Decision::Promote { next, reason } => {
            context.promote(&next, data, &reason).or_else(replace_rejected)?
        }
        Decision::IssueAll { reason } => context.issue_all(data, &reason)?,
        Decision::Adopt(cas) => context.adopt(data, cas)?,
        Decision::Retire(ids) => context.retire(data, &ids)?,
    };
    Ok(Outcome::Changed(Box::new(update)))
}

fn retired<'a>(cas: &'a [CaCertificate], reason: &'a str) -> impl Iterator<Item = Event> + 'a {
    cas.iter().map(move |ca| Event::CaRetired { id: ca.id().clone(), reason: reason.to_owned() })
}

#[derive(Clone, Copy)]
struct Context<'a> {
    name: &'a str,
    now: SystemTime,
    settings: &'a Settings,
}

impl Context<'_> {
    fn issue_all(self, mut data: SecretData, reason: &CaReason) -> Result<SecretUpdate, CaError> {
        let issued = CertificateAuthority::create(self.now, self.settings.ca_validity)?;
        let ca = self.read(&issued)?;
        let mut events =
            vec![Event::CaIssued { reason: reason.to_string(), not_after: ca.ca_certificate().not_after() }];
        events.extend(self.replace_ca(&mut data, issued.into()));
        if !matches!(read_next_ca(self.name, &data, self.now), Some(Ok(_))) {
            data.next_ca = StoredPair::default();
        }
        self.with_leaf(&ca, data, &LeafReason::NewCa, events)
    }

    fn announce(self, mut data: SecretData, reason: &CaReason) -> Result<SecretUpdate, CaError> {
        let issued = CertificateAuthority::create(self.now, self.settings.ca_validity)?;
        let not_after = self.read(&issued)?.ca_certificate().not_after();
        data.next_ca = issued.into();
        self.verified(data, vec![Event::CaAnnounced { reason: reason.to_string(), not_after }])
    }

    fn promote(
        self,
        next: &CertificateAuthority,
        mut data: SecretData,
        reason: &CaReason,
    ) -> Result<SecretUpdate, CaError> {
        let not_after = next.ca_certificate().not_after();
        let mut events = vec![Event::CaPromoted { reason: reason.to_string(), not_after }];
        let stored = std::mem::take(&mut data.next_ca);
        events.extend(self.replace_ca(&mut data, stored));
        self.with_leaf(next, data, &LeafReason::NewCa, events)
    }

    fn issue_leaf(
        self,
        ca: &CertificateAuthority,
        mut data: SecretData,
        reason: &LeafReason,
    ) -> Result<SecretUpdate, CaError> {
        if data.request == Some(RotationRequest::Leaf) {
            data.request = None;
        }
        self.with_leaf(ca, data, reason, Vec::new())
    }

    fn adopt(self, mut data: SecretData, cas: Vec<CaCertificate>) -> Result<SecretUpdate, CaError> {
        let mut events: Vec<Event> = cas.iter().map(|ca| Event::CaAdopted { id: ca.id().clone() }).collect();
        let mut previous = data.previous.clone();
        previous.extend(cas.into_iter().map(|certificate| PreviousCa { certificate, trusted_until: None }));
        for ca in previous.iter_mut().filter(|ca| ca.trusted_until.is_none()) {
            ca.trusted_until = Some(self.trusted_until(&ca.certificate, None));
        }
        events.extend(retired(&data.set_previous(previous), "there were too many"));
        self.verified(data, events)
    }

    fn retire(self, mut data: SecretData, ids: &[CaId]) -> Result<SecretUpdate, CaError> {
        let (gone, kept): (Vec<_>, Vec<_>) =
            data.previous.clone().into_iter().partition(|ca| ids.contains(ca.certificate.id()));
        let gone: Vec<CaCertificate> = gone.into_iter().map(|ca| ca.certificate).collect();
        data.set_previous(kept);
        data.retire(&gone);
        self.verified(data, retired(&gone, "its last leaf has expired").collect())
    }

    /// Returns when an earlier CA leaves the `caBundle`: after its last leaf expired. If that leaf is unknown, it
    /// expires no later than one that is issued now.
    fn trusted_until(self, ca: &CaCertificate, last_leaf: Option<SystemTime>) -> SystemTime {
        let expiry = last_leaf.or_else(|| self.now.checked_add(self.settings.leaf_validity));
        let until = expiry.and_then(|expiry| expiry.checked_add(self.settings.clock_tolerance));
        until.map_or(ca.not_after(), |until| until.min(ca.not_after()))
    }

    /// Replaces the CA in use, which becomes an earlier one, or is no longer trusted if a user revoked it. Fulfils any
    /// request.
    fn replace_ca(self, data: &mut SecretData, ca: StoredPair) -> Vec<Event> {
        let current = CaCertificate::from_pem(self.name, &data.ca.certificate, self.now).ok();
        let events = if data.request == Some(RotationRequest::RevokeCa) {
            let next = read_next_ca(self.name, data, self.now).and_then(Result::ok);
            data.next_ca = StoredPair::default();
            let previous = std::mem::take(&mut data.previous).into_iter().map(|ca| ca.certificate);
            let next = next.map(|next| next.ca_certificate().clone());
            let revoked: Vec<CaCertificate> = previous.chain(next).chain(current).collect();
            data.retire(&revoked);
            retired(&revoked, "it was revoked").collect()
        } else {
            let current = current.map(|certificate| {
                let last_leaf = leaf_not_after(data, &certificate, self.now);
                PreviousCa { trusted_until: Some(self.trusted_until(&certificate, last_leaf)), certificate }
            });
            let previous = current.into_iter().chain(data.previous.clone()).collect();
            retired(&data.set_previous(previous), "there were too many").collect()
        };
        data.ca = ca;
        if !matches!(data.request, Some(RotationRequest::Unknown(_))) {
            data.request = None;
        }
        events
    }

    fn with_leaf(
        self,
        ca: &CertificateAuthority,
        mut data: SecretData,
        reason: &LeafReason,
        mut events: Vec<Event>,
    ) -> Result<SecretUpdate, CaError> {
        data.leaf = ca.issue(&self.settings.dns_names, self.now, self.settings.leaf_validity)?.into();
        let mut update = self.verified(data, Vec::new())?;
        events.push(Event::LeafIssued {
            reason: reason.to_string(),
            serial: update.verified.pair.serial().to_owned(),
            not_after: update.verified.pair.not_after(),
        });
        update.events = events;
        Ok(update)
    }

    /// Content that this replica would replace at once must not be stored.
    fn verified(self, data: SecretData, events: Vec<Event>) -> Result<SecretUpdate, CaError> {
        let problem = match decide(self.name, Some(&data), self.now, self.settings) {
            Decision::Keep(verified) | Decision::Announce { verified, .. } => {
                return Ok(SecretUpdate { data, verified: *verified, events });
            }
            other => other.renewal_reason().unwrap_or_default(),
        };
        Err(CaError::Rejected { problem })
    }

    fn read(self, issued: &IssuedCertificate) -> Result<CertificateAuthority, CaError> {
        let pem = PemPair {
            certificate_name: "the new CA certificate",
            certificate: issued.certificate.as_bytes(),
            key_name: "the new CA key",
            key: issued.key.as_bytes(),
        };
        CertificateAuthority::from_pem(&pem, self.now)
    }
}

impl From<IssuedCertificate> for StoredPair {
    fn from(issued: IssuedCertificate) -> Self {
        Self { certificate: issued.certificate.into_bytes(), key: issued.key.into_bytes() }
    }
}
