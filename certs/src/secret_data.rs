//! The content of the Secret that the replicas share.

use std::time::SystemTime;

use strum::{Display, EnumString};

use crate::certificate::{CaId, Certificate, PemPair};
use crate::pair::Pair;

/// The most earlier CAs that are kept, which bounds the size of the `caBundle`. A further rotation waits.
pub const MAX_PREVIOUS: usize = 8;

/// The most IDs of retired CAs that are kept.
const MAX_RETIRED: usize = 16;

/// A CA that signs no longer and remains trusted until its last leaf has expired.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PreviousCa {
    /// The certificate; the key is discarded.
    pub certificate: Certificate,
    /// When it leaves the `caBundle`; `None` if the annotation lacks this CA.
    pub trusted_until: Option<SystemTime>,
}

/// The parts of the Secret that this crate manages.
///
/// All state is in one object, so every change is atomic, and a replica that dies leaves no partial change.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SecretData {
    /// `ca.crt` and `ca.key`: the CA in use.
    pub ca: PemPair,
    /// `tls.crt` and `tls.key`: the leaf that is served.
    pub leaf: PemPair,
    /// `next-ca.crt` and `next-ca.key`: the announced CA, which is in the `caBundle` and has signed nothing yet.
    pub next_ca: PemPair,
    /// `previous-ca.crt` and the annotation [`TRUSTED_UNTIL`](crate::TRUSTED_UNTIL), the latest CA first.
    pub previous: Vec<PreviousCa>,
    /// The annotation [`ROTATE`](crate::ROTATE).
    pub request: Option<RotationRequest>,
    /// Annotation [`RETIRED`](crate::RETIRED), the latest CA first.
    pub retired: Vec<CaId>,
}

/// What a user requests by the annotation [`ROTATE`](crate::ROTATE).
#[derive(Clone, Debug, Display, EnumString, Eq, PartialEq)]
#[strum(serialize_all = "kebab-case")]
pub enum RotationRequest {
    /// A new CA, with overlap, and a new leaf.
    Ca,
    /// A new leaf of the current CA.
    Leaf,
    /// A new CA and leaf at once; all other CAs are no longer trusted.
    RevokeCa,
    /// Any other value, which is ignored.
    #[strum(default)]
    Unknown(String),
}

impl SecretData {
    /// Returns whether no certificate and no key is stored.
    pub const fn is_empty(&self) -> bool {
        self.ca.is_empty() && self.leaf.is_empty() && self.next_ca.is_empty()
    }

    /// Stores the earlier CAs, the latest first. Retires and returns those beyond [`MAX_PREVIOUS`].
    pub(crate) fn set_previous(&mut self, cas: Vec<PreviousCa>) -> Vec<Certificate> {
        let mut kept: Vec<PreviousCa> = Vec::new();
        for ca in cas {
            if kept.iter().all(|other| other.certificate != ca.certificate) {
                kept.push(ca);
            }
        }
        let dropped = kept.split_off(kept.len().min(MAX_PREVIOUS));
        let dropped: Vec<Certificate> = dropped.into_iter().map(|ca| ca.certificate).collect();
        self.retired.retain(|id| kept.iter().all(|ca| ca.certificate.id != *id));
        self.previous = kept;
        self.retire(&dropped);
        dropped
    }

    /// Records that these CAs are no longer trusted.
    pub(crate) fn retire(&mut self, cas: &[Certificate]) {
        for ca in cas {
            if !self.retired.contains(&ca.id) {
                self.retired.insert(0, ca.id.clone());
            }
        }
        self.retired.truncate(MAX_RETIRED);
    }
}

/// The CAs of a Secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrustedCas {
    /// The CA in use.
    pub current: Certificate,
    /// The announced CA.
    pub next: Option<Certificate>,
    /// CAs whose leaves may still be served.
    pub previous: Vec<PreviousCa>,
    /// CAs that are no longer trusted.
    pub retired: Vec<CaId>,
}

impl TrustedCas {
    fn all(&self) -> impl Iterator<Item = &Certificate> {
        let previous = self.previous.iter().map(|ca| &ca.certificate);
        std::iter::once(&self.current).chain(&self.next).chain(previous)
    }

    /// Returns all CAs that belong in the `caBundle`, the one in use first.
    pub fn desired(&self, now: SystemTime) -> impl Iterator<Item = &Certificate> {
        self.all().filter(move |ca| !ca.has_expired(now))
    }

    /// Returns whether the Secret lists this CA, trusted or retired.
    pub(crate) fn lists(&self, id: &CaId) -> bool {
        self.all().any(|ca| ca.id == *id) || self.retired.contains(id)
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
