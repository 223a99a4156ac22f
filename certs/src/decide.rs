//! What to do about the content of the Secret, given what time it is. No I/O and no clock.
//!
//! This part judges certificates. How a change of authority goes on, once the content is sound, is judged in
//! [`rotation`](crate::Memory::next_step).

use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::server::ParsedCertificate;

use crate::anchor::Anchor;
use crate::authority::{Authority, AuthorityError};
use crate::clock::{rfc3339, unix_time};
use crate::content::{Held, Request, SecretData, Trust};
use crate::pair::{Pair, PairError, PemPair};
use crate::settings::Settings;

/// Why a new authority is needed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthorityReason {
    /// There is none yet.
    #[error("there was none")]
    Absent,
    /// The one there can't sign.
    #[error("the one stored is of no use: {0}")]
    Unusable(#[from] AuthorityError),
    /// Its life is nearly over.
    #[error("the one before ends at {not_after}")]
    Due {
        /// When the one before ends.
        not_after: String,
    },
    /// An operator asked for it.
    #[error("the annotation {} on the Secret asked for it", crate::ROTATE)]
    Requested,
    /// The successor that had been prepared can't be used.
    #[error("the one prepared is of no use: {0}")]
    NextUnusable(AuthorityError),
    /// It was prepared, and the API servers have had the time to learn of it.
    #[error("it has been in the caBundle for the settle time")]
    Settled,
}

/// Why a new leaf is needed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeafReason {
    /// There is none yet.
    #[error("there was none")]
    Absent,
    /// It goes with a new authority.
    #[error("its authority is new")]
    NewAuthority,
    /// The one there can't be served.
    #[error("the one stored is of no use: {0}")]
    Unusable(#[from] PairError),
    /// The webhook is called by another name now.
    #[error("the one stored is not for {name}")]
    OtherNames {
        /// The first name that it lacks.
        name: String,
    },
    /// The API server, which trusts the stored authority, would refuse it.
    #[error("the one stored is not accepted under the stored authority ({problem})")]
    Refused {
        /// What a verifier says.
        problem: String,
    },
    /// Two thirds of its life are over, or what was set instead.
    #[error("the one before ends at {not_after}")]
    Due {
        /// When the one before ends.
        not_after: String,
    },
    /// An operator asked for it.
    #[error("the annotation {} on the Secret asked for it", crate::ROTATE)]
    Requested,
}

/// What to do.
#[derive(Debug)]
pub enum Decision {
    /// Serve what is there.
    Keep(Box<Held>),
    /// Make a new leaf under the authority that is there.
    IssueLeaf {
        /// The authority to keep.
        authority: Box<Authority>,
        /// Why.
        reason: LeafReason,
    },
    /// Serve what is there, and prepare another authority beside the one in use.
    Announce {
        /// What to serve.
        held: Box<Held>,
        /// Why.
        reason: AuthorityReason,
    },
    /// Make a leaf under the authority that was prepared, and keep the one before as one of the past.
    Promote {
        /// The authority that was prepared.
        next: Box<Authority>,
        /// Why.
        reason: AuthorityReason,
    },
    /// Make everything anew.
    IssueAll {
        /// Why.
        reason: AuthorityReason,
    },
}

impl Decision {
    /// Why keys would be made or taken into use, if they would.
    pub(crate) fn renews(&self) -> Option<String> {
        match self {
            Self::Keep(_) => None,
            Self::IssueLeaf { reason, .. } => Some(reason.to_string()),
            Self::Announce { reason, .. } | Self::Promote { reason, .. } | Self::IssueAll { reason } => {
                Some(reason.to_string())
            }
        }
    }
}

/// Decides. `name` is what errors call the Secret.
///
/// As long as there is a leaf that the API servers accept, it is kept, and a new authority comes by announcement.
/// Only when there is none is an authority taken into use at once.
pub fn decide(name: &str, secret: Option<&SecretData>, now: SystemTime, settings: &Settings) -> Decision {
    let Some(data) = secret.filter(|data| !data.is_empty()) else {
        return Decision::IssueAll { reason: AuthorityReason::Absent };
    };
    let next = read_next(name, data, now);
    let authority = match read_authority(name, data, now) {
        Ok(authority) => authority,
        Err(error) => return without_authority(name, data, next, error, now, settings),
    };
    let pair = match read_leaf(name, data, authority.anchor(), now, settings) {
        Ok(pair) => pair,
        Err(reason) => return Decision::IssueLeaf { authority: Box::new(authority), reason },
    };
    let wanted = if data.request == Some(Request::Leaf) {
        Some(LeafReason::Requested)
    } else {
        leaf_due(&pair, authority.anchor(), now, settings)
    };
    if let Some(reason) = wanted {
        return Decision::IssueLeaf { authority: Box::new(authority), reason };
    }
    let anchor = authority.anchor();
    let wanted = if data.request == Some(Request::Authority) {
        Some(AuthorityReason::Requested)
    } else {
        let due = settings.authority_renewal.due(anchor.not_before(), anchor.not_after());
        (now >= due).then(|| AuthorityReason::Due { not_after: rfc3339(anchor.not_after()) })
    };
    keep(data, anchor.clone(), pair, next, wanted)
}

/// The authority that was prepared, if there is one.
pub(crate) fn read_next(
    name: &str,
    data: &SecretData,
    now: SystemTime,
) -> Option<Result<Authority, AuthorityError>> {
    if data.next_certificate.is_empty() && data.next_key.is_empty() {
        return None;
    }
    let pem = PemPair {
        certificate_name: &format!("{name} next-ca.crt"),
        certificate: &data.next_certificate,
        key_name: &format!("{name} next-ca.key"),
        key: &data.next_key,
    };
    Some(Authority::from_pem(&pem, now))
}

fn read_authority(name: &str, data: &SecretData, now: SystemTime) -> Result<Authority, AuthorityError> {
    let pem = PemPair {
        certificate_name: &format!("{name} ca.crt"),
        certificate: &data.authority_certificate,
        key_name: &format!("{name} ca.key"),
        key: &data.authority_key,
    };
    Authority::from_pem(&pem, now)
}

/// With its key lost an authority can't sign, but what it signed is as good as ever.
fn without_authority(
    name: &str,
    data: &SecretData,
    next: Option<Result<Authority, AuthorityError>>,
    error: AuthorityError,
    now: SystemTime,
    settings: &Settings,
) -> Decision {
    let anchor = Anchor::from_pem(&format!("{name} ca.crt"), &data.authority_certificate, now);
    let sound = anchor.ok().and_then(|anchor| {
        let pair = read_leaf(name, data, &anchor, now, settings).ok()?;
        Some((anchor, pair))
    });
    match (sound, next) {
        (Some((anchor, pair)), next) => keep(data, anchor, pair, next, Some(error.into())),
        (None, Some(Ok(next))) => Decision::Promote { next: Box::new(next), reason: error.into() },
        (None, _) => Decision::IssueAll { reason: error.into() },
    }
}

/// The leaf is good; `wanted` says why another authority should follow.
fn keep(
    data: &SecretData,
    current: Anchor,
    pair: Pair,
    next: Option<Result<Authority, AuthorityError>>,
    wanted: Option<AuthorityReason>,
) -> Decision {
    let mut previous = data.previous();
    previous.retain(|anchor| *anchor != current);
    let trust = Trust { current, next: None, previous, retired: data.retired.clone() };
    let mut held = Box::new(Held { trust, pair });
    match next {
        Some(Ok(next)) if *next.anchor() != held.trust.current => {
            held.trust.next = Some(next.anchor().clone());
            Decision::Keep(held)
        }
        Some(Err(error)) => {
            let reason = wanted.unwrap_or(AuthorityReason::NextUnusable(error));
            Decision::Announce { held, reason }
        }
        _ => match wanted {
            Some(reason) => Decision::Announce { held, reason },
            None => Decision::Keep(held),
        },
    }
}

/// The leaf, if it would be accepted.
fn read_leaf(
    name: &str,
    data: &SecretData,
    anchor: &Anchor,
    now: SystemTime,
    settings: &Settings,
) -> Result<Pair, LeafReason> {
    if data.certificate.is_empty() && data.key.is_empty() {
        return Err(LeafReason::Absent);
    }
    let pem = PemPair {
        certificate_name: &format!("{name} tls.crt"),
        certificate: &data.certificate,
        key_name: &format!("{name} tls.key"),
        key: &data.key,
    };
    let pair = Pair::from_pem(&pem, now)?;
    if let Some(missing) = settings.dns_names.iter().find(|dns_name| !pair.covers(dns_name)) {
        return Err(LeafReason::OtherNames { name: missing.clone() });
    }
    verify(&pair, anchor, now).map_err(|error| LeafReason::Refused { problem: error.to_string() })?;
    Ok(pair)
}

/// Judges the chain as a client with this authority in its bundle would.
fn verify(pair: &Pair, anchor: &Anchor, now: SystemTime) -> Result<(), rustls::Error> {
    let (leaf, intermediates) = pair.chain().split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
    let mut roots = RootCertStore::empty();
    roots.add(anchor.certificate().clone())?;
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        &roots,
        intermediates,
        unix_time(now),
        default_provider().signature_verification_algorithms.all,
    )
}

/// The leaf's time has come, and a new one could live longer. Without the second condition the last leaf of an
/// authority, which ends with it, would be renewed again and again to no gain.
fn leaf_due(pair: &Pair, anchor: &Anchor, now: SystemTime, settings: &Settings) -> Option<LeafReason> {
    let due = settings.leaf_renewal.due(pair.not_before(), pair.not_after());
    (now >= due && pair.not_after() < anchor.not_after())
        .then(|| LeafReason::Due { not_after: rfc3339(pair.not_after()) })
}
