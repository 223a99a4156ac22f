//! Carries a decision out in memory: the new content of the Secret, and what to tell about it. No I/O.

use std::time::SystemTime;

use crate::anchor::Anchor;
use crate::authority::{Authority, AuthorityError, Issued};
use crate::content::{Held, Request, SecretData};
use crate::decide::{AuthorityReason, Decision, LeafReason, decide, read_next};
use crate::event::Event;
use crate::pair::PemPair;
use crate::rotation::Step;
use crate::settings::Settings;

/// New content for the Secret.
#[derive(Debug)]
pub struct Fresh {
    /// What to store.
    pub data: SecretData,
    /// The same, ready to use once it is stored.
    pub held: Held,
    /// What to tell once it is stored.
    pub events: Vec<Event>,
}

/// What a decision comes to.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing to store.
    Kept(Box<Held>),
    /// Store this, and use it only when that succeeded: another replica may have been first.
    Fresh(Box<Fresh>),
}

/// Makes what the decision asks for. `stored` is the content that was decided upon.
pub fn carry_out(
    decision: Decision,
    name: &str,
    stored: Option<&SecretData>,
    now: SystemTime,
    settings: &Settings,
) -> Result<Outcome, AuthorityError> {
    let making = Making { name, now, settings };
    let kept = stored.cloned().unwrap_or_default();
    let anew = |error: AuthorityError| match error {
        // Asking it again would be in vain as well, for ever.
        error @ AuthorityError::Rejected { .. } => making.issue_all(kept.clone(), &error.into()),
        error => Err(error),
    };
    let fresh = match decision {
        Decision::Keep(held) => return Ok(Outcome::Kept(held)),
        Decision::IssueLeaf { authority, reason } => {
            making.issue_leaf(&authority, kept.clone(), &reason).or_else(anew)?
        }
        Decision::Announce { reason, .. } => making.announce(kept, &reason)?,
        Decision::Promote { next, reason } => making.promote(&next, kept.clone(), &reason).or_else(anew)?,
        Decision::IssueAll { reason } => making.issue_all(kept, &reason)?,
    };
    Ok(Outcome::Fresh(Box::new(fresh)))
}

/// Takes a step in a change of authority. `stored` is the content that was judged, and `held` what it came to.
pub fn take_step(
    step: Step,
    name: &str,
    held: Held,
    stored: &SecretData,
    now: SystemTime,
    settings: &Settings,
) -> Result<Outcome, AuthorityError> {
    let mut data = stored.clone();
    let mut events = Vec::new();
    match step {
        Step::Rest => return Ok(Outcome::Kept(Box::new(held))),
        Step::Promote => {
            // Judged a moment ago; if it is gone the next look says why.
            let Some(Ok(next)) = read_next(name, stored, now) else {
                return Ok(Outcome::Kept(Box::new(held)));
            };
            let decision = Decision::Promote { next: Box::new(next), reason: AuthorityReason::Settled };
            return carry_out(decision, name, Some(stored), now, settings);
        }
        Step::Adopt(strays) => {
            events.extend(strays.iter().map(|stray| Event::AuthorityFound { id: stray.id().clone() }));
            let mut previous = held.trust.previous.clone();
            previous.extend(strays);
            events.extend(retired(&data.keep_previous(previous), "there were too many"));
        }
        Step::Retire(gone) => {
            let (gone, stay): (Vec<Anchor>, Vec<Anchor>) =
                held.trust.previous.iter().cloned().partition(|anchor| gone.contains(anchor.id()));
            data.retire(&gone);
            data.keep_previous(stay);
            for anchor in &gone {
                let why = if anchor.ended(now) { "its life is over" } else { "no replica serves its leaves" };
                events.extend(retired(std::slice::from_ref(anchor), why));
            }
        }
        Step::Note(ledger) => data.ledger = ledger,
    }
    Making { name, now, settings }.judged(data, events).map(|fresh| Outcome::Fresh(Box::new(fresh)))
}

fn retired<'a>(anchors: &'a [Anchor], why: &'a str) -> impl Iterator<Item = Event> + 'a {
    anchors.iter().map(|anchor| Event::AuthorityRetired { id: anchor.id().clone(), reason: why.to_owned() })
}

/// What all makings need to know.
#[derive(Clone, Copy)]
struct Making<'a> {
    name: &'a str,
    now: SystemTime,
    settings: &'a Settings,
}

impl Making<'_> {
    fn issue_all(self, mut data: SecretData, reason: &AuthorityReason) -> Result<Fresh, AuthorityError> {
        let made = Authority::create(self.now, self.settings.authority_validity)?;
        let authority = self.read(&made)?;
        let mut events =
            vec![Event::AuthorityIssued { reason: reason.to_string(), not_after: authority.not_after() }];
        if !matches!(read_next(self.name, &data, self.now), Some(Ok(_))) {
            data.next_certificate.clear();
            data.next_key.clear();
        }
        events.extend(self.take_into_use(&mut data, made.certificate.into_bytes(), made.key.into_bytes()));
        self.with_leaf(&authority, data, &LeafReason::NewAuthority, events)
    }

    fn announce(self, mut data: SecretData, reason: &AuthorityReason) -> Result<Fresh, AuthorityError> {
        let made = Authority::create(self.now, self.settings.authority_validity)?;
        let authority = self.read(&made)?;
        data.next_certificate = made.certificate.into_bytes();
        data.next_key = made.key.into_bytes();
        let told = Event::AuthorityAnnounced { reason: reason.to_string(), not_after: authority.not_after() };
        self.judged(data, vec![told])
    }

    fn promote(
        self,
        next: &Authority,
        mut data: SecretData,
        reason: &AuthorityReason,
    ) -> Result<Fresh, AuthorityError> {
        let mut events =
            vec![Event::AuthorityPromoted { reason: reason.to_string(), not_after: next.not_after() }];
        let certificate = std::mem::take(&mut data.next_certificate);
        let key = std::mem::take(&mut data.next_key);
        events.extend(self.take_into_use(&mut data, certificate, key));
        self.with_leaf(next, data, &LeafReason::NewAuthority, events)
    }

    fn issue_leaf(
        self,
        authority: &Authority,
        mut data: SecretData,
        reason: &LeafReason,
    ) -> Result<Fresh, AuthorityError> {
        if data.request == Some(Request::Leaf) {
            data.request = None;
        }
        self.with_leaf(authority, data, reason, Vec::new())
    }

    /// Puts an authority in the place of the one in use, which becomes one of the past. Any request is met by that.
    fn take_into_use(self, data: &mut SecretData, certificate: Vec<u8>, key: Vec<u8>) -> Vec<Event> {
        let before = Anchor::from_pem(self.name, &data.authority_certificate, self.now);
        data.authority_certificate = certificate;
        data.authority_key = key;
        if matches!(data.request, Some(Request::Authority | Request::Leaf)) {
            data.request = None;
        }
        let mut previous: Vec<Anchor> = before.into_iter().collect();
        previous.extend(data.previous());
        retired(&data.keep_previous(previous), "there were too many").collect()
    }

    fn with_leaf(
        self,
        authority: &Authority,
        mut data: SecretData,
        reason: &LeafReason,
        mut events: Vec<Event>,
    ) -> Result<Fresh, AuthorityError> {
        let made = authority.issue(&self.settings.dns_names, self.now, self.settings.leaf_validity)?;
        data.certificate = made.certificate.into_bytes();
        data.key = made.key.into_bytes();
        let mut fresh = self.judged(data, Vec::new())?;
        events.push(Event::LeafIssued {
            reason: reason.to_string(),
            serial: fresh.held.pair.serial().to_owned(),
            not_after: fresh.held.pair.not_after(),
        });
        fresh.events = events;
        Ok(fresh)
    }

    /// Judged like anything else before it is stored: what this replica would replace at once, it must not store.
    fn judged(self, data: SecretData, events: Vec<Event>) -> Result<Fresh, AuthorityError> {
        let rejected = |problem: String| Err(AuthorityError::Rejected { problem });
        match decide(self.name, Some(&data), self.now, self.settings) {
            Decision::Keep(held) | Decision::Announce { held, .. } => Ok(Fresh { data, held: *held, events }),
            Decision::IssueLeaf { reason, .. } => rejected(reason.to_string()),
            Decision::Promote { reason, .. } | Decision::IssueAll { reason } => rejected(reason.to_string()),
        }
    }

    fn read(self, made: &Issued) -> Result<Authority, AuthorityError> {
        let pem = PemPair {
            certificate_name: "the new authority's certificate",
            certificate: made.certificate.as_bytes(),
            key_name: "the new authority's key",
            key: made.key.as_bytes(),
        };
        Authority::from_pem(&pem, self.now)
    }
}
