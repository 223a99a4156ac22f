//! The certificate of a CA, without its key.

use std::fmt::{self, Write};
use std::time::SystemTime;

use rustls::CipherSuiteCommon;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::CertificateDer;

use crate::clock::rfc3339;
use crate::fields::CertificateFields;
use crate::pair::{PairError, read_chain};

pub(crate) const CA_COMMON_NAME: &str = "Swansong webhook CA";

/// Octets of the digest in an ID, enough to distinguish the CAs of one cluster.
const ID_OCTETS: usize = 8;

/// Why a CA can't be used or a certificate can't be issued.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CaError {
    /// Certificate or key can't be read, or the certificate isn't valid at this time.
    #[error(transparent)]
    Unreadable(#[from] PairError),
    /// The certificate may not sign others.
    #[error("{name} is not a CA certificate (basicConstraints lacks CA:TRUE)")]
    NotACa { name: String },
    /// The key can be read, but its type can't sign.
    #[error("{name} can't be used for signing; store it as PKCS#8 (openssl pkcs8 -topk8 -nocrypt)")]
    UnsupportedKey { name: String },
    /// Clients reject what the CA signs: its certificate is damaged where only a verifier notices, or its name
    /// constraints exclude the DNS names.
    #[error("no certificate that it signs would be accepted: {problem}")]
    Rejected {
        /// The verifier's error.
        problem: String,
    },
    /// The certificate library returned an error.
    #[error("a certificate can't be issued ({problem}); check the service name and namespace")]
    Issue {
        /// The library's error.
        problem: String,
    },
}

impl From<rcgen::Error> for CaError {
    fn from(error: rcgen::Error) -> Self {
        Self::Issue { problem: error.to_string() }
    }
}

/// The ID of a CA: the first octets of its certificate's SHA-256 digest in hexadecimal.
///
/// Serial numbers aren't unique: CAs made by hand often have the serial 0 or 1.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CaId(String);

impl CaId {
    /// Computes the ID of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = cipher_suite().map(|common| common.hash_provider.hash(certificate));
        let mut id = String::with_capacity(ID_OCTETS * 2);
        for octet in digest.as_ref().map_or(&[][..], AsRef::as_ref).iter().take(ID_OCTETS) {
            // Writing into a string can't fail.
            let _ = write!(id, "{octet:02x}");
        }
        Self(id)
    }

    /// Parses an ID, or returns `None` if the text has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let valid =
            text.len() == ID_OCTETS * 2 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(text.to_owned()))
    }
}

/// The TLS library provides SHA-256 as part of a cipher suite.
const fn cipher_suite() -> Option<&'static CipherSuiteCommon> {
    match TLS13_AES_128_GCM_SHA256 {
        rustls::SupportedCipherSuite::Tls13(suite) => Some(&suite.common),
        rustls::SupportedCipherSuite::Tls12(_) => None,
    }
}

impl fmt::Display for CaId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A parsed CA certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaCertificate {
    certificate: CertificateDer<'static>,
    id: CaId,
    not_before: SystemTime,
    not_after: SystemTime,
    subject: Vec<u8>,
    has_our_name: bool,
}

impl CaCertificate {
    /// Reads a CA certificate and checks that it is valid at `now`. Of several certificates the first is read.
    pub fn from_pem(name: &str, pem: &[u8], now: SystemTime) -> Result<Self, CaError> {
        let certificate = read_chain(name, pem)?.swap_remove(0);
        let fields = CertificateFields::parse(&certificate).map_err(|problem| PairError::BadCertificate {
            name: name.to_owned(),
            position: 1,
            problem,
        })?;
        Self::checked(name, certificate, fields, now)
    }

    pub(crate) fn checked(
        name: &str,
        certificate: CertificateDer<'static>,
        fields: CertificateFields,
        now: SystemTime,
    ) -> Result<Self, CaError> {
        let name = || name.to_owned();
        if !fields.is_ca {
            return Err(CaError::NotACa { name: name() });
        }
        if now < fields.not_before {
            let not_before = rfc3339(fields.not_before);
            return Err(PairError::NotYetValid { name: name(), serial: fields.serial, not_before }.into());
        }
        if now >= fields.not_after {
            let not_after = rfc3339(fields.not_after);
            return Err(PairError::Expired { name: name(), serial: fields.serial, not_after }.into());
        }
        Ok(Self::new(certificate, fields))
    }

    /// Parses DER, or returns `None` if it isn't the certificate of a CA.
    pub(crate) fn from_der(certificate: &CertificateDer<'_>) -> Option<Self> {
        let fields = CertificateFields::parse(certificate).ok().filter(|fields| fields.is_ca)?;
        Some(Self::new(certificate.clone().into_owned(), fields))
    }

    fn new(certificate: CertificateDer<'static>, fields: CertificateFields) -> Self {
        Self {
            id: CaId::of(&certificate),
            certificate,
            not_before: fields.not_before,
            not_after: fields.not_after,
            subject: fields.subject,
            has_our_name: fields.common_name.as_deref() == Some(CA_COMMON_NAME),
        }
    }

    /// Returns the certificate.
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the ID.
    pub const fn id(&self) -> &CaId {
        &self.id
    }

    /// Returns the start of its validity.
    pub const fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Returns the end of its validity.
    pub const fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Returns whether its validity has ended.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        now >= self.not_after
    }

    /// Returns whether this CA is for the same purpose as `current`: this crate created it, or the subjects are equal.
    pub(crate) fn is_related_to(&self, current: &Self) -> bool {
        self.has_our_name || self.subject == current.subject
    }
}
