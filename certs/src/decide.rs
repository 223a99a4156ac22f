//! Decides what to do about the content of the Secret at a given time. No I/O and no clock.
//!
//! This module judges certificates. [`RotationState::next_step`](crate::RotationState::next_step) continues a rotation
//! when the content is valid.

use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::server::ParsedCertificate;

use crate::ca::{CaError, CertificateAuthority};
use crate::ca_certificate::{CaCertificate, CaId};
use crate::clock::{rfc3339, unix_time};
use crate::pair::{Pair, PairError, PemPair};
use crate::secret_data::{RotationRequest, SecretData, StoredPair, TrustedCas, VerifiedSecret};
use crate::settings::{Settings, renewal_due};

/// Why a new CA is needed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CaReason {
    /// The Secret has none.
    #[error("there was none")]
    Absent,
    /// The stored CA can't sign.
    #[error("the stored one can't be used: {0}")]
    Unusable(#[from] CaError),
    /// The CA is due for renewal.
    #[error("the previous one expires at {not_after}")]
    Due {
        /// When the CA in use expires.
        not_after: String,
    },
    /// A user requested it.
    #[error("the annotation {} on the Secret requests it", crate::ROTATE)]
    Requested,
    /// The announced CA can't be used.
    #[error("the announced one can't be used: {0}")]
    NextUnusable(CaError),
    /// The announced CA has been in the `caBundle` for the settle time.
    #[error("it has been in the caBundle for the settle time")]
    Settled,
}

/// Why a new leaf is needed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LeafReason {
    /// The Secret has none.
    #[error("there was none")]
    Absent,
    #[error("its CA is new")]
    NewCa,
    /// The stored leaf can't be served.
    #[error("the stored one can't be used: {0}")]
    Unusable(#[from] PairError),
    /// The Service has another name.
    #[error("the stored one is not valid for {name}")]
    OtherNames {
        /// The first name that the leaf lacks.
        name: String,
    },
    /// An API server that trusts the stored CA would reject the leaf.
    #[error("the stored one is rejected by a client that trusts the stored CA ({problem})")]
    Rejected {
        /// The verifier's error.
        problem: String,
    },
    /// The leaf is due for renewal.
    #[error("the previous one expires at {not_after}")]
    Due {
        /// When the previous leaf expires.
        not_after: String,
    },
    /// A user requested it.
    #[error("the annotation {} on the Secret requests it", crate::ROTATE)]
    Requested,
}

/// The next change of the Secret.
#[derive(Debug)]
pub enum Decision {
    /// The Secret stays unchanged.
    Keep(Box<VerifiedSecret>),
    /// Issue a leaf of the stored CA.
    IssueLeaf {
        /// The stored CA.
        ca: Box<CertificateAuthority>,
        reason: LeafReason,
    },
    /// Create the next CA and keep the current one in use.
    Announce {
        /// The stored leaf and CAs.
        verified: Box<VerifiedSecret>,
        /// Why a new CA is needed.
        reason: CaReason,
    },
    /// Take the announced CA into use and issue its leaf.
    Promote {
        /// The announced CA.
        next: Box<CertificateAuthority>,
        /// Why a new CA is needed.
        reason: CaReason,
    },
    /// Create a CA and a leaf and use both at once.
    IssueAll {
        /// Why a new CA is needed.
        reason: CaReason,
    },
    /// Keep these CAs, found in a `caBundle`, as earlier ones, and set the missing times of expiry.
    Adopt(Vec<CaCertificate>),
    /// Stop trusting these CAs.
    Retire(Vec<CaId>),
}

impl Decision {
    /// Returns the reason if the decision repairs or renews something, which is limited in frequency.
    pub(crate) fn renewal_reason(&self) -> Option<String> {
        match self {
            Self::Keep(_)
            | Self::Promote { reason: CaReason::Settled, .. }
            | Self::Adopt(_)
            | Self::Retire(_) => None,
            Self::IssueLeaf { reason, .. } => Some(reason.to_string()),
            Self::Announce { reason, .. } | Self::Promote { reason, .. } | Self::IssueAll { reason } => {
                Some(reason.to_string())
            }
        }
    }
}

/// Decides about the certificates of a Secret. `name` is the name of the Secret in errors.
///
/// While there is a leaf that API servers accept, it is kept and a new CA is announced first. A new CA is used at once
/// only if there is no such leaf, or on the request to revoke the current CA.
pub fn decide(name: &str, secret: Option<&SecretData>, now: SystemTime, settings: &Settings) -> Decision {
    let Some(data) = secret.filter(|data| !data.is_empty()) else {
        return Decision::IssueAll { reason: CaReason::Absent };
    };
    if data.request == Some(RotationRequest::RevokeCa) {
        return Decision::IssueAll { reason: CaReason::Requested };
    }
    let next = read_next_ca(name, data, now);
    let ca = match read_ca(name, "ca", &data.ca, now) {
        Ok(ca) => ca,
        Err(error) => return decide_without_ca(name, data, next, error, now, settings),
    };
    let current = ca.ca_certificate();
    let pair = match read_leaf(name, data, current, now, settings) {
        Ok(pair) => pair,
        Err(reason) => return Decision::IssueLeaf { ca: Box::new(ca), reason },
    };
    let reason = if data.request == Some(RotationRequest::Leaf) {
        Some(LeafReason::Requested)
    } else {
        leaf_due(&pair, current, now)
    };
    if let Some(reason) = reason {
        return Decision::IssueLeaf { ca: Box::new(ca), reason };
    }
    let reason = if data.request == Some(RotationRequest::Ca) {
        Some(CaReason::Requested)
    } else {
        let due = renewal_due(current.not_before(), current.not_after());
        (now >= due).then(|| CaReason::Due { not_after: rfc3339(current.not_after()) })
    };
    keep(data, current.clone(), pair, next, reason)
}

/// Reads the announced CA, if the Secret has one.
pub(crate) fn read_next_ca(
    name: &str,
    data: &SecretData,
    now: SystemTime,
) -> Option<Result<CertificateAuthority, CaError>> {
    (!data.next_ca.is_empty()).then(|| read_ca(name, "next-ca", &data.next_ca, now))
}

fn read_ca(
    name: &str,
    part: &str,
    stored: &StoredPair,
    now: SystemTime,
) -> Result<CertificateAuthority, CaError> {
    let (certificate_name, key_name) = (format!("{name} {part}.crt"), format!("{name} {part}.key"));
    CertificateAuthority::from_pem(&pem_pair(&certificate_name, &key_name, stored), now)
}

fn pem_pair<'a>(certificate_name: &'a str, key_name: &'a str, stored: &'a StoredPair) -> PemPair<'a> {
    PemPair { certificate_name, certificate: &stored.certificate, key_name, key: &stored.key }
}

/// A CA without its key can't sign, but its leaf remains valid.
fn decide_without_ca(
    name: &str,
    data: &SecretData,
    next: Option<Result<CertificateAuthority, CaError>>,
    error: CaError,
    now: SystemTime,
    settings: &Settings,
) -> Decision {
    let current = CaCertificate::from_pem(&format!("{name} ca.crt"), &data.ca.certificate, now);
    let valid = current.ok().and_then(|current| {
        let pair = read_leaf(name, data, &current, now, settings).ok()?;
        Some((current, pair))
    });
    match (valid, next) {
        (Some((current, pair)), next) => keep(data, current, pair, next, Some(error.into())),
        (None, Some(Ok(next))) => Decision::Promote { next: Box::new(next), reason: error.into() },
        (None, _) => Decision::IssueAll { reason: error.into() },
    }
}

/// The leaf is valid; `reason` is set if the CA needs a successor.
fn keep(
    data: &SecretData,
    current: CaCertificate,
    pair: Pair,
    next: Option<Result<CertificateAuthority, CaError>>,
    reason: Option<CaReason>,
) -> Decision {
    let mut previous = data.previous.clone();
    previous.retain(|ca| ca.certificate != current);
    let cas = TrustedCas { current, next: None, previous, retired: data.retired.clone() };
    let mut verified = Box::new(VerifiedSecret { cas, pair });
    let reason = match next {
        Some(Ok(next)) if *next.ca_certificate() != verified.cas.current => {
            verified.cas.next = Some(next.ca_certificate().clone());
            None
        }
        Some(Err(error)) => Some(reason.unwrap_or(CaReason::NextUnusable(error))),
        _ => reason,
    };
    match reason {
        Some(reason) => Decision::Announce { verified, reason },
        None => Decision::Keep(verified),
    }
}

/// Reads the leaf if API servers that trust this CA accept it.
fn read_leaf(
    name: &str,
    data: &SecretData,
    ca: &CaCertificate,
    now: SystemTime,
    settings: &Settings,
) -> Result<Pair, LeafReason> {
    if data.leaf.is_empty() {
        return Err(LeafReason::Absent);
    }
    let (certificate_name, key_name) = (format!("{name} tls.crt"), format!("{name} tls.key"));
    let pair = Pair::from_pem(&pem_pair(&certificate_name, &key_name, &data.leaf), now)?;
    if let Some(missing) = settings.dns_names.iter().find(|dns_name| !pair.covers(dns_name)) {
        return Err(LeafReason::OtherNames { name: missing.clone() });
    }
    verify(&pair, ca, now).map_err(|error| LeafReason::Rejected { problem: error.to_string() })?;
    Ok(pair)
}

/// Returns when the stored leaf expires, if it is a valid leaf of this CA.
pub(crate) fn leaf_not_after(data: &SecretData, ca: &CaCertificate, now: SystemTime) -> Option<SystemTime> {
    let pair = Pair::from_pem(&pem_pair("tls.crt", "tls.key", &data.leaf), now).ok()?;
    verify(&pair, ca, now).ok().map(|()| pair.not_after())
}

/// Verifies the chain as a client does that trusts this CA.
fn verify(pair: &Pair, ca: &CaCertificate, now: SystemTime) -> Result<(), rustls::Error> {
    let (leaf, intermediates) = pair.chain().split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().clone())?;
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        &roots,
        intermediates,
        unix_time(now),
        default_provider().signature_verification_algorithms.all,
    )
}

/// A leaf that expires with its CA isn't renewed: a new one would expire at the same time.
fn leaf_due(pair: &Pair, ca: &CaCertificate, now: SystemTime) -> Option<LeafReason> {
    let due = renewal_due(pair.not_before(), pair.not_after());
    (now >= due && pair.not_after() < ca.not_after())
        .then(|| LeafReason::Due { not_after: rfc3339(pair.not_after()) })
}
