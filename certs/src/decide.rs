//! Decides what to do about the content of the Secret at a given time. No I/O and no clock.
//!
//! This module judges certificates. [`RotationState::next_step`](crate::RotationState::next_step) continues a rotation
//! when the content is valid.

use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::UnixTime;
use rustls::server::ParsedCertificate;

use crate::ca::{CertificateAuthority, Settings};
use crate::certificate::{CaId, Certificate, PemPair, timestamp};
use crate::error::Error;
use crate::pair::Pair;
use crate::secret_data::{RotationRequest, SecretData, TrustedCas, VerifiedSecret};

const ABSENT: &str = "there was none";
const REQUESTED: &str = "the annotation swansong.dev/rotate on the Secret requests it";

/// The next change of the Secret, with its reason.
#[derive(Debug)]
pub enum Decision {
    /// The Secret stays unchanged.
    Keep(Box<VerifiedSecret>),
    /// Issue a leaf of the stored CA.
    IssueLeaf(String),
    /// Create the next CA and keep the current one in use.
    Announce(String),
    /// Take the announced CA into use and issue its leaf. Without a reason, the announced CA has settled.
    Promote(Option<String>),
    /// Create a CA and a leaf and use both at once.
    IssueAll(String),
    /// Keep these CAs, found in a `caBundle`, as earlier ones, and set the missing times of expiry.
    Adopt(Vec<Certificate>),
    /// Stop trusting these CAs.
    Retire(Vec<CaId>),
}

impl Decision {
    /// Returns the reason if the decision repairs or renews something, which is limited in frequency.
    pub(crate) fn renewal_reason(&self) -> Option<&str> {
        match self {
            Self::IssueLeaf(reason)
            | Self::Announce(reason)
            | Self::Promote(Some(reason))
            | Self::IssueAll(reason) => Some(reason),
            Self::Keep(_) | Self::Promote(None) | Self::Adopt(_) | Self::Retire(_) => None,
        }
    }
}

/// Decides about the certificates of a Secret. `name` is the name of the Secret in errors.
///
/// While there is a leaf that API servers accept, it is kept and a new CA is announced first. A new CA is used at once
/// only if there is no such leaf, or on the request to revoke the current CA.
pub fn decide(name: &str, secret: Option<&SecretData>, now: SystemTime, settings: &Settings) -> Decision {
    let Some(data) = secret.filter(|data| !data.is_empty()) else {
        return Decision::IssueAll(ABSENT.to_owned());
    };
    if data.request == Some(RotationRequest::RevokeCa) {
        return Decision::IssueAll(REQUESTED.to_owned());
    }
    let ca = read_ca(name, "ca", &data.ca, now);
    let next = read_next_ca(name, data, now);
    let verified = match (verify(name, data, now, settings), &ca) {
        (Ok(verified), _) => verified,
        (Err(problem), Ok(_)) => return Decision::IssueLeaf(problem),
        // A CA without its key can't sign.
        (Err(_), Err(error)) if matches!(next, Some(Ok(_))) => {
            return Decision::Promote(Some(unusable(error)));
        }
        (Err(_), Err(error)) => return Decision::IssueAll(unusable(error)),
    };
    let (leaf, current) = (&verified.pair.leaf, &verified.cas.current);
    let renewal = match ca {
        Err(error) => Some(unusable(&error)),
        // A leaf that expires with its CA isn't renewed: a new one would expire at the same time.
        Ok(_)
            if data.request == Some(RotationRequest::Leaf)
                || is_due(leaf, now) && leaf.not_after < current.not_after =>
        {
            return Decision::IssueLeaf(renewal_reason(data, &RotationRequest::Leaf, leaf));
        }
        Ok(_) if data.request == Some(RotationRequest::Ca) || is_due(current, now) => {
            Some(renewal_reason(data, &RotationRequest::Ca, current))
        }
        Ok(_) => None,
    };
    let announcement = match next {
        Some(Err(error)) => {
            Some(renewal.unwrap_or_else(|| format!("the announced one can't be used: {error}")))
        }
        _ if verified.cas.next.is_some() => None,
        _ => renewal,
    };
    announcement.map_or_else(|| Decision::Keep(Box::new(verified)), Decision::Announce)
}

fn renewal_reason(data: &SecretData, request: &RotationRequest, previous: &Certificate) -> String {
    if data.request.as_ref() == Some(request) {
        return REQUESTED.to_owned();
    }
    format!("the previous one expires at {}", timestamp(previous.not_after))
}

pub(crate) fn unusable(error: &Error) -> String {
    format!("the stored one can't be used: {error}")
}

/// A certificate is due for renewal after two thirds of its validity.
fn is_due(certificate: &Certificate, now: SystemTime) -> bool {
    let validity = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
    now >= certificate.not_before + validity / 3 * 2
}

pub(crate) fn read_ca(
    name: &str,
    part: &str,
    pem: &PemPair,
    now: SystemTime,
) -> Result<CertificateAuthority, Error> {
    CertificateAuthority::from_pem(pem, &format!("{name} {part}.crt"), &format!("{name} {part}.key"), now)
}

/// Reads the announced CA, if the Secret has one.
pub(crate) fn read_next_ca(
    name: &str,
    data: &SecretData,
    now: SystemTime,
) -> Option<Result<CertificateAuthority, Error>> {
    (!data.next_ca.is_empty()).then(|| read_ca(name, "next-ca", &data.next_ca, now))
}

/// Returns the leaf and the CAs of a Secret if API servers that trust its CA accept the leaf, otherwise the reason.
pub(crate) fn verify(
    name: &str,
    data: &SecretData,
    now: SystemTime,
    settings: &Settings,
) -> Result<VerifiedSecret, String> {
    let unusable = |error: Error| unusable(&error);
    let current =
        Certificate::ca_from_pem(&format!("{name} ca.crt"), &data.ca.certificate, now).map_err(unusable)?;
    if data.leaf.is_empty() {
        return Err(ABSENT.to_owned());
    }
    let pair = read_leaf(name, data, now).map_err(unusable)?;
    if let Some(missing) = settings.dns_names.iter().find(|dns_name| !pair.covers(dns_name)) {
        return Err(format!("the stored one is not valid for {missing}"));
    }
    verify_chain(&pair, &current, now).map_err(|error| {
        format!("the stored one is rejected by a client that trusts the stored CA ({error})")
    })?;
    let next = read_next_ca(name, data, now).and_then(Result::ok).map(|next| next.certificate);
    let cas = TrustedCas {
        next: next.filter(|next| *next != current),
        previous: data.previous.iter().filter(|ca| ca.certificate != current).cloned().collect(),
        retired: data.retired.clone(),
        current,
    };
    Ok(VerifiedSecret { cas, pair })
}

fn read_leaf(name: &str, data: &SecretData, now: SystemTime) -> Result<Pair, Error> {
    Pair::from_pem(&data.leaf, &format!("{name} tls.crt"), &format!("{name} tls.key"), now)
}

/// Returns when the stored leaf expires, if it is a valid leaf of this CA.
pub(crate) fn leaf_not_after(data: &SecretData, ca: &Certificate, now: SystemTime) -> Option<SystemTime> {
    let pair = read_leaf("", data, now).ok()?;
    verify_chain(&pair, ca, now).ok().map(|()| pair.leaf.not_after)
}

/// Verifies the chain as a client does that trusts this CA.
fn verify_chain(pair: &Pair, ca: &Certificate, now: SystemTime) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der.clone())?;
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(&pair.leaf.der)?,
        &roots,
        &pair.certified.cert[1..],
        UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
        default_provider().signature_verification_algorithms.all,
    )
}
