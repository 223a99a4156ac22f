//! What to do about the Secret, given what is in it and what time it is. No I/O and no clock.
//!
//! Rotation of the authority with overlap belongs here: a further [`Decision`] taken when the authority nears its end,
//! with the old certificate kept behind the new one in `ca.crt` until every replica serves the new leaf. `ca_bundle`
//! already keeps an authority of ours that is still in its time.

use std::fmt;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::server::ParsedCertificate;

use crate::authority::{AUTHORITY_VALIDITY, Authority, AuthorityError, LEAF_VALIDITY};
use crate::clock::{rfc3339, unix_time};
use crate::pair::{Pair, PairError, PemPair};

/// What the Secret holds; a key that is absent is empty.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct SecretData {
    /// `ca.crt`
    pub authority_certificate: Vec<u8>,
    /// `ca.key`
    pub authority_key: Vec<u8>,
    /// `tls.crt`
    pub certificate: Vec<u8>,
    /// `tls.key`
    pub key: Vec<u8>,
}

impl fmt::Debug for SecretData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SecretData")
            .field("authority_certificate", &self.authority_certificate.len())
            .field("authority_key", &"…")
            .field("certificate", &self.certificate.len())
            .field("key", &"…")
            .finish()
    }
}

impl SecretData {
    /// Whether none of the four is there.
    pub fn is_empty(&self) -> bool {
        [&self.authority_certificate, &self.authority_key, &self.certificate, &self.key]
            .iter()
            .all(|part| part.is_empty())
    }
}

/// What certificates are wanted.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names the leaf must cover.
    pub dns_names: Vec<String>,
    /// Life of an authority.
    pub authority_validity: Duration,
    /// Life of a leaf.
    pub leaf_validity: Duration,
}

impl Settings {
    /// The usual lives, for these names.
    pub const fn new(dns_names: Vec<String>) -> Self {
        Self { dns_names, authority_validity: AUTHORITY_VALIDITY, leaf_validity: LEAF_VALIDITY }
    }
}

/// Why a new authority is needed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthorityReason {
    /// There is none yet.
    #[error("there was none")]
    Absent,
    /// The one there can't sign.
    #[error("the one stored is of no use: {0}")]
    Unusable(#[from] AuthorityError),
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
    /// Two thirds of its life are over.
    #[error("the one before ends at {not_after}")]
    Due {
        /// When the one before ends.
        not_after: String,
    },
}

/// A Secret found sound.
#[derive(Debug)]
pub struct Held {
    /// The authority.
    pub authority: Authority,
    /// The leaf, with its key.
    pub pair: Pair,
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
    /// Make everything anew.
    IssueAll {
        /// Why.
        reason: AuthorityReason,
    },
}

/// Decides. `name` is what errors call the Secret.
pub fn decide(name: &str, secret: Option<&SecretData>, now: SystemTime, settings: &Settings) -> Decision {
    let Some(data) = secret.filter(|data| !data.is_empty()) else {
        return Decision::IssueAll { reason: AuthorityReason::Absent };
    };
    let authority = match read_authority(name, data, now) {
        Ok(authority) => Box::new(authority),
        Err(error) => {
            return Decision::IssueAll { reason: error.into() };
        }
    };
    match judge_leaf(name, data, &authority, now, settings) {
        Ok(pair) => Decision::Keep(Box::new(Held { authority: *authority, pair })),
        Err(reason) => Decision::IssueLeaf { authority, reason },
    }
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

fn judge_leaf(
    name: &str,
    data: &SecretData,
    authority: &Authority,
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
    verify(&pair, authority, now).map_err(|error| LeafReason::Refused { problem: error.to_string() })?;
    if renewal_due(&pair, authority, now) {
        return Err(LeafReason::Due { not_after: rfc3339(pair.not_after()) });
    }
    Ok(pair)
}

/// Judges the chain as a client with this authority in its bundle would.
fn verify(pair: &Pair, authority: &Authority, now: SystemTime) -> Result<(), rustls::Error> {
    let (leaf, intermediates) = pair.chain().split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone())?;
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        &roots,
        intermediates,
        unix_time(now),
        default_provider().signature_verification_algorithms.all,
    )
}

/// Two thirds of the leaf's life are over, and a new one could live longer. Without the second condition the last
/// leaf of an authority, which ends with it, would be renewed again and again to no gain.
fn renewal_due(pair: &Pair, authority: &Authority, now: SystemTime) -> bool {
    let life = pair.not_after().duration_since(pair.not_before()).unwrap_or_default();
    now >= pair.not_before() + life / 3 * 2 && pair.not_after() < authority.not_after()
}
