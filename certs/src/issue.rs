//! Carries a decision out in memory: the new content of the Secret, and what to tell about it. No I/O.

use std::time::SystemTime;

use crate::authority::{Authority, AuthorityError};
use crate::decide::{AuthorityReason, Decision, Held, LeafReason, SecretData, Settings, decide};
use crate::event::Event;
use crate::pair::PemPair;

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
    let fresh = match decision {
        Decision::Keep(held) => return Ok(Outcome::Kept(held)),
        Decision::IssueLeaf { authority, reason } => {
            let kept = stored.cloned().unwrap_or_default();
            match issue_leaf(name, &authority, kept, &reason, now, settings) {
                // Asking it again would be in vain as well, for ever.
                Err(error @ AuthorityError::Rejected { .. }) => {
                    issue_all(name, &error.into(), now, settings)?
                }
                outcome => outcome?,
            }
        }
        Decision::IssueAll { reason } => issue_all(name, &reason, now, settings)?,
    };
    Ok(Outcome::Fresh(Box::new(fresh)))
}

fn issue_all(
    name: &str,
    reason: &AuthorityReason,
    now: SystemTime,
    settings: &Settings,
) -> Result<Fresh, AuthorityError> {
    let made = Authority::create(now, settings.authority_validity)?;
    let data = SecretData {
        authority_certificate: made.certificate.into_bytes(),
        authority_key: made.key.into_bytes(),
        ..SecretData::default()
    };
    let pem = PemPair {
        certificate_name: "the new authority's certificate",
        certificate: &data.authority_certificate,
        key_name: "the new authority's key",
        key: &data.authority_key,
    };
    let authority = Authority::from_pem(&pem, now)?;
    let told = Event::AuthorityIssued { reason: reason.to_string(), not_after: authority.not_after() };
    let mut fresh = issue_leaf(name, &authority, data, &LeafReason::NewAuthority, now, settings)?;
    fresh.events.insert(0, told);
    Ok(fresh)
}

fn issue_leaf(
    name: &str,
    authority: &Authority,
    mut data: SecretData,
    reason: &LeafReason,
    now: SystemTime,
    settings: &Settings,
) -> Result<Fresh, AuthorityError> {
    let made = authority.issue(&settings.dns_names, now, settings.leaf_validity)?;
    data.certificate = made.certificate.into_bytes();
    data.key = made.key.into_bytes();
    // Judged like anything else before it is stored: what this replica would replace at once, it must not store.
    match decide(name, Some(&data), now, settings) {
        Decision::Keep(held) => {
            let told = Event::LeafIssued {
                reason: reason.to_string(),
                serial: held.pair.serial().to_owned(),
                not_after: held.pair.not_after(),
            };
            Ok(Fresh { data, held: *held, events: vec![told] })
        }
        Decision::IssueLeaf { reason, .. } => Err(AuthorityError::Rejected { problem: reason.to_string() }),
        Decision::IssueAll { reason } => Err(AuthorityError::Rejected { problem: reason.to_string() }),
    }
}
