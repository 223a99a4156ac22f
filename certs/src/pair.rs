//! A certificate chain with its private key.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::verify_server_name;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};

use crate::clock::rfc3339;
use crate::fields::CertificateFields;

/// PEM text of a certificate and its key, and the names (file paths or keys of a Secret) that errors use for them.
#[derive(Clone, Copy)]
pub struct PemPair<'a> {
    /// Name of the certificate in errors.
    pub certificate_name: &'a str,
    /// The chain, leaf first.
    pub certificate: &'a [u8],
    /// Name of the key in errors.
    pub key_name: &'a str,
    /// The private key: PKCS#8, SEC1 or PKCS#1.
    pub key: &'a [u8],
}

impl fmt::Debug for PemPair<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PemPair")
            .field("certificate_name", &self.certificate_name)
            .field("key_name", &self.key_name)
            .finish_non_exhaustive()
    }
}

/// Why a pair can't be served. Errors never quote the content of a key file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PairError {
    /// The text contains no certificate.
    #[error("{name} holds no certificate; put the server's certificate there as PEM, intermediates after it")]
    NoCertificate { name: String },
    /// The PEM or DER of a certificate is damaged.
    #[error("{name}, certificate {position}, can't be read ({problem}); write the file again, whole")]
    BadCertificate {
        name: String,
        /// Position in the chain, from 1.
        position: usize,
        /// Description of the damage.
        problem: String,
    },
    /// The text contains no private key.
    #[error("{name} holds no private key; put the key there as PEM (PKCS#8, SEC1 or PKCS#1)")]
    NoKey { name: String },
    /// The key is protected by a passphrase.
    #[error("{name} is encrypted; store it without a passphrase (openssl pkey -in OLD -out NEW)")]
    EncryptedKey { name: String },
    /// The PEM of the key is damaged, or its type isn't supported.
    #[error(
        "{name} can't be used as a private key; write it again, whole, as ECDSA P-256/P-384, Ed25519 or RSA of 2048 bits or more"
    )]
    BadKey { name: String },
    /// The key belongs to another certificate, for example while only one of two files has been replaced.
    #[error(
        "{key_name} is not the key of the first certificate in {name} (serial {serial}); replace both together, and put the server's own certificate first"
    )]
    KeyMismatch {
        /// Name of the certificate.
        name: String,
        key_name: String,
        /// Serial number of the certificate.
        serial: String,
    },
    /// The certificate isn't valid yet.
    #[error(
        "{name} (serial {serial}) is valid only from {not_before}; check this machine's clock, or issue it again"
    )]
    NotYetValid {
        name: String,
        /// Serial number of the certificate.
        serial: String,
        /// Start of its validity.
        not_before: String,
    },
    /// The certificate has expired.
    #[error("{name} (serial {serial}) expired at {not_after}; renew it")]
    Expired {
        name: String,
        /// Serial number of the certificate.
        serial: String,
        /// End of its validity.
        not_after: String,
    },
}

/// A certificate chain whose key matches and that was valid when it was read.
#[derive(Clone)]
pub struct Pair {
    certified: Arc<CertifiedKey>,
    serial: String,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl fmt::Debug for Pair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pair")
            .field("serial", &self.serial)
            .field("not_before", &self.not_before)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Pair {
    /// Reads a pair and checks it as of `now`.
    ///
    /// Of the chain only the leaf's validity is checked: chains with an expired cross-signed root are legitimate.
    pub fn from_pem(pem: &PemPair<'_>, now: SystemTime) -> Result<Self, PairError> {
        let name = || pem.certificate_name.to_owned();
        let key_name = || pem.key_name.to_owned();

        let chain = read_chain(pem.certificate_name, pem.certificate)?;
        let leaf = chain.first().ok_or_else(|| PairError::NoCertificate { name: name() })?;
        let fields = CertificateFields::parse(leaf).map_err(|problem| PairError::BadCertificate {
            name: name(),
            position: 1,
            problem,
        })?;
        let key = read_key(pem.key_name, pem.key)?;
        let certified =
            CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| match error {
                TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => PairError::KeyMismatch {
                    name: name(),
                    key_name: key_name(),
                    serial: fields.serial.clone(),
                },
                TlsError::InvalidCertificate(problem) => {
                    PairError::BadCertificate { name: name(), position: 1, problem: problem.to_string() }
                }
                _ => PairError::BadKey { name: key_name() },
            })?;

        if now < fields.not_before {
            return Err(PairError::NotYetValid {
                name: name(),
                serial: fields.serial,
                not_before: rfc3339(fields.not_before),
            });
        }
        let pair = Self {
            certified: Arc::new(certified),
            serial: fields.serial,
            not_before: fields.not_before,
            not_after: fields.not_after,
        };
        pair.check_expiry(pem.certificate_name, now)?;
        Ok(pair)
    }

    /// Returns the chain and key in the form that rustls serves.
    pub fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    /// Returns the chain, leaf first. It is never empty.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// Returns the serial number of the leaf in hexadecimal.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// Returns the start of the leaf's validity.
    pub const fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Returns the end of the leaf's validity.
    pub const fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Returns whether the leaf is valid for this DNS name; wildcards count.
    pub fn covers(&self, dns_name: &str) -> bool {
        let Some(leaf) = self.chain().first() else {
            return false;
        };
        let Ok(leaf) = ParsedCertificate::try_from(leaf) else {
            return false;
        };
        ServerName::try_from(dns_name).is_ok_and(|name| verify_server_name(&leaf, &name).is_ok())
    }

    /// Returns whether both have the same chain.
    pub fn same_chain(&self, other: &Self) -> bool {
        self.chain() == other.chain()
    }

    /// Returns an error if the pair has expired.
    pub(crate) fn check_expiry(&self, name: &str, now: SystemTime) -> Result<(), PairError> {
        if now <= self.not_after {
            return Ok(());
        }
        Err(PairError::Expired {
            name: name.to_owned(),
            serial: self.serial.clone(),
            not_after: rfc3339(self.not_after),
        })
    }
}

/// Reads all certificates of a PEM text. One damaged certificate is an error for the whole text.
pub(crate) fn read_chain(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PairError> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        chain.push(certificate.map_err(|error| PairError::BadCertificate {
            name: name.to_owned(),
            position: chain.len() + 1,
            problem: describe(&error).to_owned(),
        })?);
    }
    if chain.is_empty() {
        return Err(PairError::NoCertificate { name: name.to_owned() });
    }
    Ok(chain)
}

/// Reads the first private key of a PEM text. The PEM error is dropped on purpose: it may quote the text.
pub(crate) fn read_key(name: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, PairError> {
    const ENCRYPTED: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
    let name = || name.to_owned();
    if ENCRYPTED.iter().any(|mark| pem.windows(mark.len()).any(|part| part == *mark)) {
        return Err(PairError::EncryptedKey { name: name() });
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        PemError::NoItemsFound => PairError::NoKey { name: name() },
        _ => PairError::BadKey { name: name() },
    })
}

/// Describes the damage without quoting the file, which may contain the key as well.
fn describe(error: &PemError) -> &'static str {
    match error {
        PemError::MissingSectionEnd { .. } => "its END line is missing",
        PemError::IllegalSectionStart { .. } => "its BEGIN line is damaged",
        PemError::Base64Decode(_) => "its base64 text is damaged",
        _ => "it is not valid PEM",
    }
}
