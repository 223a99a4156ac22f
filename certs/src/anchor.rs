//! An authority's certificate without its key: what others trust.

use std::fmt::{self, Write};
use std::time::SystemTime;

use rustls::CipherSuiteCommon;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::CertificateDer;

use crate::authority::{AUTHORITY_NAME, AuthorityError};
use crate::clock::rfc3339;
use crate::facts::Facts;
use crate::pair::{PairError, read_chain};

/// Octets of the digest that are shown; enough to tell the few authorities of one cluster apart.
const SHOWN: usize = 8;

/// Short name of an authority: the start of its certificate's SHA-256 digest, hexadecimal.
///
/// A serial number would not do: authorities made by hand often share 0 or 1.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct AuthorityId(String);

impl AuthorityId {
    /// The name of this certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = common().map(|common| common.hash_provider.hash(certificate));
        let mut name = String::with_capacity(SHOWN * 2);
        for octet in digest.as_ref().map_or(&[][..], AsRef::as_ref).iter().take(SHOWN) {
            // Writing into a string can't fail.
            let _ = write!(name, "{octet:02x}");
        }
        Self(name)
    }

    /// A name read back from where it was written; `None` for what no authority is called.
    pub fn parse(text: &str) -> Option<Self> {
        let sound =
            text.len() == SHOWN * 2 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        sound.then(|| Self(text.to_owned()))
    }
}

/// The crate that does TLS has the digest too.
const fn common() -> Option<&'static CipherSuiteCommon> {
    match TLS13_AES_128_GCM_SHA256 {
        rustls::SupportedCipherSuite::Tls13(suite) => Some(&suite.common),
        rustls::SupportedCipherSuite::Tls12(_) => None,
    }
}

impl fmt::Display for AuthorityId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// An authority's certificate, read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Anchor {
    certificate: CertificateDer<'static>,
    id: AuthorityId,
    not_before: SystemTime,
    not_after: SystemTime,
    subject: Vec<u8>,
    named_like_ours: bool,
}

impl Anchor {
    /// Reads an authority's certificate and checks that it counts at `now`. Of several certificates the first is read.
    pub fn from_pem(name: &str, pem: &[u8], now: SystemTime) -> Result<Self, AuthorityError> {
        let certificate = read_chain(name, pem)?.swap_remove(0);
        let facts = Facts::read(&certificate).map_err(|problem| PairError::BadCertificate {
            name: name.to_owned(),
            position: 1,
            problem,
        })?;
        Self::checked(name, certificate, facts, now)
    }

    pub(crate) fn checked(
        name: &str,
        certificate: CertificateDer<'static>,
        facts: Facts,
        now: SystemTime,
    ) -> Result<Self, AuthorityError> {
        let name = || name.to_owned();
        if !facts.is_authority {
            return Err(AuthorityError::NotAnAuthority { name: name() });
        }
        if now < facts.not_before {
            let not_before = rfc3339(facts.not_before);
            return Err(PairError::NotYetValid { name: name(), serial: facts.serial, not_before }.into());
        }
        if now >= facts.not_after {
            let not_after = rfc3339(facts.not_after);
            return Err(PairError::Expired { name: name(), serial: facts.serial, not_after }.into());
        }
        Ok(Self::new(certificate, facts))
    }

    /// Reads DER, or nothing when it is no authority's certificate.
    pub(crate) fn from_der(certificate: &CertificateDer<'_>) -> Option<Self> {
        let facts = Facts::read(certificate).ok().filter(|facts| facts.is_authority)?;
        Some(Self::new(certificate.clone().into_owned(), facts))
    }

    fn new(certificate: CertificateDer<'static>, facts: Facts) -> Self {
        Self {
            id: AuthorityId::of(&certificate),
            certificate,
            not_before: facts.not_before,
            not_after: facts.not_after,
            subject: facts.subject,
            named_like_ours: facts.common_name.as_deref() == Some(AUTHORITY_NAME),
        }
    }

    /// The certificate.
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its short name.
    pub const fn id(&self) -> &AuthorityId {
        &self.id
    }

    /// First moment of validity.
    pub const fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// When it ends.
    pub const fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether it has ended.
    pub fn ended(&self, now: SystemTime) -> bool {
        now >= self.not_after
    }

    /// Whether the two were made for the same purpose: by name, or because this crate made the other.
    pub(crate) fn is_kin_of(&self, current: &Self) -> bool {
        self.named_like_ours || self.subject == current.subject
    }
}
