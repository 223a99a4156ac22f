//! The content of the Secret that the replicas share.

use std::fmt;
use std::time::SystemTime;

use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rustls::pki_types::CertificateDer;

use crate::ca_certificate::{CaCertificate, CaId};
use crate::pair::Pair;

/// The most earlier CAs that are kept, which bounds the size of the `caBundle`. A further rotation waits.
pub const MAX_PREVIOUS: usize = 8;

/// The most IDs of retired CAs that are kept.
const MAX_RETIRED: usize = 16;

/// A certificate and its key as PEM; a key that is absent in the Secret is empty.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct StoredPair {
    /// The certificate as PEM.
    pub certificate: Vec<u8>,
    /// The private key as PEM.
    pub key: Vec<u8>,
}

impl StoredPair {
    /// Returns whether both parts are absent.
    pub const fn is_empty(&self) -> bool {
        self.certificate.is_empty() && self.key.is_empty()
    }
}

impl fmt::Debug for StoredPair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StoredPair").field("certificate", &self.certificate.len()).finish_non_exhaustive()
    }
}

/// A CA that signs no longer and remains trusted until its last leaf has expired.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PreviousCa {
    /// The certificate; the key is discarded.
    pub certificate: CaCertificate,
    /// When it leaves the `caBundle`; `None` if the annotation lacks this CA.
    pub trusted_until: Option<SystemTime>,
}

/// The parts of the Secret that this crate manages.
///
/// All state is in one object, so every change is atomic, and a replica that dies leaves nothing half done.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SecretData {
    /// `ca.crt` and `ca.key`: the CA in use.
    pub ca: StoredPair,
    /// `tls.crt` and `tls.key`: the leaf that is served.
    pub leaf: StoredPair,
    /// `next-ca.crt` and `next-ca.key`: the announced CA, which is in the `caBundle` and has signed nothing yet.
    pub next_ca: StoredPair,
    /// `previous-ca.crt` and the annotation [`TRUSTED_UNTIL`](crate::TRUSTED_UNTIL), the latest CA first.
    pub previous: Vec<PreviousCa>,
    /// The annotation [`ROTATE`](crate::ROTATE).
    pub request: Option<RotationRequest>,
    /// Annotation [`RETIRED`](crate::RETIRED), the latest CA first.
    pub retired: Vec<CaId>,
}

/// What a user requests by the annotation [`ROTATE`](crate::ROTATE).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RotationRequest {
    /// `ca`: a new CA, with overlap, and a new leaf.
    Ca,
    /// `leaf`: a new leaf of the current CA.
    Leaf,
    /// `revoke-ca`: a new CA and leaf at once; all other CAs are no longer trusted.
    RevokeCa,
    /// Any other value, which is ignored.
    Unknown(String),
}

impl RotationRequest {
    /// Parses the annotation.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "ca" => Self::Ca,
            "leaf" => Self::Leaf,
            "revoke-ca" => Self::RevokeCa,
            other => Self::Unknown(other.to_owned()),
        }
    }

    /// Returns the value of the annotation.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ca => "ca",
            Self::Leaf => "leaf",
            Self::RevokeCa => "revoke-ca",
            Self::Unknown(other) => other,
        }
    }
}

impl SecretData {
    /// Returns whether no certificate and no key is stored.
    pub const fn is_empty(&self) -> bool {
        self.ca.is_empty() && self.leaf.is_empty() && self.next_ca.is_empty()
    }

    /// Stores the earlier CAs, the latest first. Retires and returns those beyond [`MAX_PREVIOUS`].
    pub(crate) fn set_previous(&mut self, cas: Vec<PreviousCa>) -> Vec<CaCertificate> {
        let mut kept: Vec<PreviousCa> = Vec::new();
        for ca in cas {
            if kept.iter().all(|other| other.certificate != ca.certificate) {
                kept.push(ca);
            }
        }
        let dropped = kept.split_off(kept.len().min(MAX_PREVIOUS));
        let dropped: Vec<CaCertificate> = dropped.into_iter().map(|ca| ca.certificate).collect();
        self.retired.retain(|id| kept.iter().all(|ca| ca.certificate.id() != id));
        self.previous = kept;
        self.retire(&dropped);
        dropped
    }

    /// Records that these CAs are no longer trusted.
    pub(crate) fn retire(&mut self, cas: &[CaCertificate]) {
        for ca in cas {
            if !self.retired.contains(ca.id()) {
                self.retired.insert(0, ca.id().clone());
            }
        }
        self.retired.truncate(MAX_RETIRED);
    }
}

/// The CAs of a Secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrustedCas {
    /// The CA in use.
    pub current: CaCertificate,
    /// The announced CA.
    pub next: Option<CaCertificate>,
    /// CAs whose leaves may still be served.
    pub previous: Vec<PreviousCa>,
    /// CAs that are no longer trusted.
    pub retired: Vec<CaId>,
}

impl TrustedCas {
    /// Returns all CAs that belong in the `caBundle`, the one in use first.
    pub fn desired(&self, now: SystemTime) -> impl Iterator<Item = &CaCertificate> {
        let previous = self.previous.iter().map(|ca| &ca.certificate).filter(move |ca| !ca.has_expired(now));
        std::iter::once(&self.current).chain(&self.next).chain(previous)
    }

    /// Returns whether the Secret lists this CA, trusted or retired.
    pub(crate) fn lists(&self, id: &CaId) -> bool {
        let previous = self.previous.iter().map(|ca| &ca.certificate);
        let mut listed = std::iter::once(&self.current).chain(&self.next).chain(previous);
        listed.any(|ca| ca.id() == id) || self.retired.contains(id)
    }
}

/// A Secret whose leaf clients accept.
#[derive(Clone, Debug)]
pub struct VerifiedSecret {
    /// The CAs that clients should trust.
    pub cas: TrustedCas,
    /// The leaf of [`TrustedCas::current`], with its key.
    pub pair: Pair,
}

/// Encodes a certificate as PEM with Unix line ends.
pub(crate) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let section = Pem::new("CERTIFICATE", certificate.as_ref());
    encode_config(&section, EncodeConfig::new().set_line_ending(LineEnding::LF))
}
