//! Applies a decision in memory: the new content of the Secret, and the events to report once it is stored. No I/O.

use std::time::SystemTime;

use crate::ca::{CertificateAuthority, Settings};
use crate::certificate::{CaId, Certificate, PemPair, timestamp};
use crate::decide::{Decision, decide, leaf_not_after, read_ca, read_next_ca, unusable, verify};
use crate::error::Error;
use crate::event::Event;
use crate::secret_data::{PreviousCa, RotationRequest, SecretData, VerifiedSecret};

/// New content for the Secret. It may be used only after the write succeeded: another replica may have been first.
#[derive(Debug)]
pub struct SecretUpdate {
    /// What to store.
    pub data: SecretData,
    /// The same content, ready to use once it is stored.
    pub verified: VerifiedSecret,
    /// What to report once it is stored.
    pub events: Vec<Event>,
}

/// Issues what the decision requires. `stored` is the content that the decision is about.
pub fn apply(
    decision: Decision,
    name: &str,
    stored: Option<&SecretData>,
    now: SystemTime,
    settings: &Settings,
) -> Result<SecretUpdate, Error> {
    let context = Context { name, now, settings };
    let data = stored.cloned().unwrap_or_default();
    // A CA whose leaves are rejected is replaced, since its next leaf would be rejected again.
    let issue_all = |error| context.issue_all(data.clone(), &unusable(&error));
    match decision {
        Decision::Keep(verified) => Ok(SecretUpdate { data, verified: *verified, events: Vec::new() }),
        Decision::IssueLeaf(reason) => context.issue_leaf(data.clone(), &reason).or_else(issue_all),
        Decision::Announce(reason) => context.announce(data, reason),
        Decision::Promote(reason) => context.promote(data.clone(), reason).or_else(issue_all),
        Decision::IssueAll(reason) => context.issue_all(data, &reason),
        Decision::Adopt(cas) => context.adopt(data, cas),
        Decision::Retire(ids) => context.retire(data, &ids),
    }
}

fn retired<'a>(cas: &'a [Certificate], reason: &'a str) -> impl Iterator<Item = Event> + 'a {
    cas.iter().map(move |ca| Event::CaRetired { id: ca.id.clone(), reason: reason.to_owned() })
}

#[derive(Clone, Copy)]
struct Context<'a> {
    name: &'a str,
    now: SystemTime,
    settings: &'a Settings,
}

impl Context<'_> {
    fn issue_all(self, mut data: SecretData, reason: &str) -> Result<SecretUpdate, Error> {
        let (pem, ca) = self.create_ca()?;
        let not_after = timestamp(ca.certificate.not_after);
        let mut events = vec![Event::CaIssued { reason: reason.to_owned(), not_after }];
        events.extend(self.replace_ca(&mut data, pem));
        if !matches!(read_next_ca(self.name, &data, self.now), Some(Ok(_))) {
            data.next_ca = PemPair::default();
        }
        self.with_leaf(&ca, data, "its CA is new", events)
    }

    fn announce(self, mut data: SecretData, reason: String) -> Result<SecretUpdate, Error> {
        let (pem, ca) = self.create_ca()?;
        data.next_ca = pem;
        let not_after = timestamp(ca.certificate.not_after);
        self.verified(data, vec![Event::CaAnnounced { reason, not_after }])
    }

    fn promote(self, mut data: SecretData, reason: Option<String>) -> Result<SecretUpdate, Error> {
        let reason = reason.unwrap_or_else(|| "it has been in the caBundle for the settle time".to_owned());
        let pem = std::mem::take(&mut data.next_ca);
        let next = read_ca(self.name, "next-ca", &pem, self.now)?;
        let not_after = timestamp(next.certificate.not_after);
        let mut events = vec![Event::CaPromoted { reason, not_after }];
        events.extend(self.replace_ca(&mut data, pem));
        self.with_leaf(&next, data, "its CA is new", events)
    }

    fn issue_leaf(self, mut data: SecretData, reason: &str) -> Result<SecretUpdate, Error> {
        if data.request == Some(RotationRequest::Leaf) {
            data.request = None;
        }
        let ca = read_ca(self.name, "ca", &data.ca, self.now)?;
        self.with_leaf(&ca, data, reason, Vec::new())
    }

    fn adopt(self, mut data: SecretData, cas: Vec<Certificate>) -> Result<SecretUpdate, Error> {
        let mut events: Vec<Event> = cas.iter().map(|ca| Event::CaAdopted { id: ca.id.clone() }).collect();
        let mut previous = data.previous.clone();
        previous.extend(cas.into_iter().map(|certificate| PreviousCa { certificate, trusted_until: None }));
        for ca in previous.iter_mut().filter(|ca| ca.trusted_until.is_none()) {
            ca.trusted_until = Some(self.trusted_until(&ca.certificate, None));
        }
        events.extend(retired(&data.set_previous(previous), "there were too many"));
        self.verified(data, events)
    }

    fn retire(self, mut data: SecretData, ids: &[CaId]) -> Result<SecretUpdate, Error> {
        let (gone, kept): (Vec<_>, Vec<_>) =
            data.previous.clone().into_iter().partition(|ca| ids.contains(&ca.certificate.id));
        let gone: Vec<Certificate> = gone.into_iter().map(|ca| ca.certificate).collect();
        data.set_previous(kept);
        data.retire(&gone);
        self.verified(data, retired(&gone, "its last leaf has expired").collect())
    }

    /// Returns when an earlier CA leaves the `caBundle`: after its last leaf expired. If that leaf is unknown, it
    /// expires no later than one that is issued now.
    fn trusted_until(self, ca: &Certificate, last_leaf: Option<SystemTime>) -> SystemTime {
        let expiry = last_leaf.or_else(|| self.now.checked_add(self.settings.leaf_validity));
        let until = expiry.and_then(|expiry| expiry.checked_add(self.settings.clock_tolerance));
        until.map_or(ca.not_after, |until| until.min(ca.not_after))
    }

    /// Replaces the CA in use, which becomes an earlier one, or is no longer trusted if a user revoked it. Fulfils any
    /// request.
    fn replace_ca(self, data: &mut SecretData, ca: PemPair) -> Vec<Event> {
        let current = Certificate::ca_from_pem(self.name, &data.ca.certificate, self.now).ok();
        let events = if data.request == Some(RotationRequest::RevokeCa) {
            let next =
                read_next_ca(self.name, data, self.now).and_then(Result::ok).map(|next| next.certificate);
            data.next_ca = PemPair::default();
            let previous = std::mem::take(&mut data.previous).into_iter().map(|ca| ca.certificate);
            let revoked: Vec<Certificate> = previous.chain(next).chain(current).collect();
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
        data.request.take_if(|request| !matches!(request, RotationRequest::Unknown(_)));
        events
    }

    fn with_leaf(
        self,
        ca: &CertificateAuthority,
        mut data: SecretData,
        reason: &str,
        mut events: Vec<Event>,
    ) -> Result<SecretUpdate, Error> {
        data.leaf = ca.issue(&self.settings.dns_names, self.now, self.settings.leaf_validity)?;
        let mut update = self.verified(data, Vec::new())?;
        let leaf = &update.verified.pair.leaf;
        let (serial, not_after) = (leaf.serial.clone(), timestamp(leaf.not_after));
        events.push(Event::LeafIssued { reason: reason.to_owned(), serial, not_after });
        update.events = events;
        Ok(update)
    }

    /// Content that this replica would replace at once must not be stored.
    fn verified(self, data: SecretData, events: Vec<Event>) -> Result<SecretUpdate, Error> {
        let verified = verify(self.name, &data, self.now, self.settings);
        let problem = match (decide(self.name, Some(&data), self.now, self.settings), verified) {
            (Decision::Keep(_) | Decision::Announce(_), Ok(verified)) => {
                return Ok(SecretUpdate { data, verified, events });
            }
            (other, _) => other.renewal_reason().unwrap_or_default().to_owned(),
        };
        Err(Error::new(format!("no certificate that it signs would be accepted: {problem}")))
    }

    fn create_ca(self) -> Result<(PemPair, CertificateAuthority), Error> {
        let pem = CertificateAuthority::create(self.now, self.settings.ca_validity)?;
        let ca = CertificateAuthority::from_pem(&pem, "the new CA certificate", "the new CA key", self.now)?;
        Ok((pem, ca))
    }
}
