//! The content of the Secret, as far as it is ours.

use std::fmt;
use std::time::SystemTime;

use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::anchor::{Anchor, AuthorityId};
use crate::ledger::Ledger;
use crate::pair::Pair;

/// Authorities of the past that are kept at most; with the one in use and its successor that bounds the `caBundle`.
pub const MAX_PREVIOUS: usize = 4;

/// Names of authorities given up that are remembered at most.
const MAX_RETIRED: usize = 8;

/// What the Secret holds; a key or annotation that is absent is empty.
///
/// Everything is in one object, so every change of it is whole or not at all, and a replica that dies leaves nothing
/// half done behind.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct SecretData {
    /// `ca.crt`: the authority in use.
    pub authority_certificate: Vec<u8>,
    /// `ca.key`
    pub authority_key: Vec<u8>,
    /// `tls.crt`
    pub certificate: Vec<u8>,
    /// `tls.key`
    pub key: Vec<u8>,
    /// `next-ca.crt`: the authority that will follow; in the `caBundle` already, while nothing is signed by it yet.
    pub next_certificate: Vec<u8>,
    /// `next-ca.key`
    pub next_key: Vec<u8>,
    /// `previous-ca.crt`: authorities of which replicas may still serve leaves, the latest first. Their keys are gone.
    pub previous: Vec<u8>,
    /// Annotation [`ROTATE`](crate::ROTATE).
    pub request: Option<Request>,
    /// Annotation [`SERVING`](crate::SERVING).
    pub ledger: Ledger,
    /// Annotation [`RETIRED`](crate::RETIRED), the latest first.
    pub retired: Vec<AuthorityId>,
}

/// What an operator asks for by the annotation [`ROTATE`](crate::ROTATE).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// `ca`: a new authority, with overlap, and so in time a new leaf.
    Authority,
    /// `leaf`: a new leaf of the authority in use.
    Leaf,
    /// Anything else, which is ignored.
    Unknown(String),
}

impl Request {
    /// Reads the annotation.
    pub fn parse(text: &str) -> Self {
        match text.trim() {
            "ca" => Self::Authority,
            "leaf" => Self::Leaf,
            other => Self::Unknown(other.to_owned()),
        }
    }

    /// How it is written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Authority => "ca",
            Self::Leaf => "leaf",
            Self::Unknown(other) => other,
        }
    }
}

impl fmt::Debug for SecretData {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SecretData")
            .field("authority_certificate", &self.authority_certificate.len())
            .field("certificate", &self.certificate.len())
            .field("next_certificate", &self.next_certificate.len())
            .field("previous", &self.previous.len())
            .field("request", &self.request)
            .field("ledger", &self.ledger)
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}

impl SecretData {
    /// Whether no certificate and no key is there.
    pub fn is_empty(&self) -> bool {
        [
            &self.authority_certificate,
            &self.authority_key,
            &self.certificate,
            &self.key,
            &self.next_certificate,
            &self.next_key,
        ]
        .iter()
        .all(|part| part.is_empty())
    }

    /// The authorities of the past; what can't be read is left out.
    pub(crate) fn previous(&self) -> Vec<Anchor> {
        CertificateDer::pem_slice_iter(&self.previous)
            .filter_map(Result::ok)
            .filter_map(|certificate| Anchor::from_der(&certificate))
            .collect()
    }

    /// Keeps these as the authorities of the past, the latest first. What is too many is given up, and returned.
    pub(crate) fn keep_previous(&mut self, anchors: Vec<Anchor>) -> Vec<Anchor> {
        let mut kept: Vec<Anchor> = Vec::new();
        for anchor in anchors {
            if !kept.contains(&anchor) {
                kept.push(anchor);
            }
        }
        let given_up = kept.split_off(kept.len().min(MAX_PREVIOUS));
        self.previous =
            kept.iter().map(|anchor| section(anchor.certificate())).collect::<String>().into_bytes();
        self.retired.retain(|id| kept.iter().all(|anchor| anchor.id() != id));
        self.retire(&given_up);
        if kept.is_empty() {
            self.ledger = Ledger::default();
        }
        given_up
    }

    /// Remembers that these are given up.
    pub(crate) fn retire(&mut self, anchors: &[Anchor]) {
        for anchor in anchors {
            if !self.retired.contains(anchor.id()) {
                self.retired.insert(0, anchor.id().clone());
            }
        }
        self.retired.truncate(MAX_RETIRED);
    }
}

/// Which authorities are to be trusted, by what the Secret says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trust {
    /// The one in use.
    pub current: Anchor,
    /// The one that will follow.
    pub next: Option<Anchor>,
    /// Those of which replicas may still serve leaves.
    pub previous: Vec<Anchor>,
    /// Those given up.
    pub retired: Vec<AuthorityId>,
}

impl Trust {
    /// All that belong into the `caBundle`, the one in use first.
    pub fn wanted(&self, now: SystemTime) -> impl Iterator<Item = &Anchor> {
        let past = self.previous.iter().filter(move |anchor| !anchor.ended(now));
        std::iter::once(&self.current).chain(&self.next).chain(past)
    }

    /// Whether the Secret speaks of this authority, be it to give it up.
    pub(crate) fn knows(&self, id: &AuthorityId) -> bool {
        let mut known = std::iter::once(&self.current).chain(&self.next).chain(&self.previous);
        known.any(|anchor| anchor.id() == id) || self.retired.contains(id)
    }

    /// How far a change of authority has come.
    pub const fn stage(&self) -> Stage {
        match (&self.next, self.previous.is_empty()) {
            (_, false) => Stage::Overlap,
            (Some(_), true) => Stage::Announced,
            (None, true) => Stage::Steady,
        }
    }
}

/// How far a change of authority has come. Its text serves as a metric label.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Stage {
    /// One authority, and no other in sight.
    Steady,
    /// The successor is in the `caBundle`, and nothing is signed by it yet.
    Announced,
    /// The successor's leaf is served, and the predecessor still trusted.
    Overlap,
}

impl Stage {
    /// The label: `steady`, `announced` or `overlap`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Announced => "announced",
            Self::Overlap => "overlap",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A Secret found sound.
#[derive(Clone, Debug)]
pub struct Held {
    /// Whom to trust.
    pub trust: Trust,
    /// The leaf of [`Trust::current`], with its key.
    pub pair: Pair,
}

/// A certificate as PEM with the line ends of Unix.
pub(crate) fn section(certificate: &CertificateDer<'_>) -> String {
    let section = Pem::new("CERTIFICATE", certificate.as_ref());
    encode_config(&section, EncodeConfig::new().set_line_ending(LineEnding::LF))
}
