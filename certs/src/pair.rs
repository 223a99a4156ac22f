//! A certificate chain and its private key: read from PEM, checked, ready to serve.

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
use crate::facts::Facts;

/// PEM text of a pair, with the names that errors call the two parts by (a path, or a Secret's key).
#[derive(Clone, Copy)]
pub struct PemPair<'a> {
    /// What to call the certificate in errors.
    pub certificate_name: &'a str,
    /// The chain, leaf first.
    pub certificate: &'a [u8],
    /// What to call the key in errors.
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

/// Why a pair can't be served. Never holds key material: what a key file contains is not quoted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PairError {
    /// Nothing there that is a certificate.
    #[error("{name} holds no certificate; put the server's certificate there as PEM, intermediates after it")]
    NoCertificate {
        /// What was read.
        name: String,
    },
    /// Damaged PEM or DER.
    #[error("{name}, certificate {position}, can't be read ({problem}); write the file again, whole")]
    BadCertificate {
        /// What was read.
        name: String,
        /// Which certificate of the chain, from 1.
        position: usize,
        /// What is wrong.
        problem: String,
    },
    /// Nothing there that is a private key.
    #[error("{name} holds no private key; put the key there as PEM (PKCS#8, SEC1 or PKCS#1)")]
    NoKey {
        /// What was read.
        name: String,
    },
    /// A passphrase would be needed.
    #[error("{name} is encrypted; store it without a passphrase (openssl pkey -in OLD -out NEW)")]
    EncryptedKey {
        /// What was read.
        name: String,
    },
    /// Damaged PEM, or a kind of key that isn't supported.
    #[error(
        "{name} can't be used as a private key; write it again, whole, as ECDSA P-256/P-384, Ed25519 or RSA of 2048 bits or more"
    )]
    BadKey {
        /// What was read.
        name: String,
    },
    /// The key belongs to another certificate, as when only one of two files has been replaced yet.
    #[error(
        "{key_name} is not the key of the first certificate in {name} (serial {serial}); replace both together, and put the server's own certificate first"
    )]
    KeyMismatch {
        /// Where the certificate was read.
        name: String,
        /// Where the key was read.
        key_name: String,
        /// Serial number of the certificate.
        serial: String,
    },
    /// Its time has not come.
    #[error(
        "{name} (serial {serial}) is valid only from {not_before}; check this machine's clock, or issue it again"
    )]
    NotYetValid {
        /// What was read.
        name: String,
        /// Serial number.
        serial: String,
        /// First moment of validity.
        not_before: String,
    },
    /// Its time is over.
    #[error("{name} (serial {serial}) expired at {not_after}; renew it")]
    Expired {
        /// What was read.
        name: String,
        /// Serial number.
        serial: String,
        /// Last moment of validity.
        not_after: String,
    },
}

/// A checked pair: the key is the certificate's, and it was valid when it was read.
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
    /// Reads and checks a pair as of `now`.
    ///
    /// Only the leaf's own times are checked: chains with an expired cross-signed root are in lawful use.
    pub fn from_pem(pem: &PemPair<'_>, now: SystemTime) -> Result<Self, PairError> {
        let name = || pem.certificate_name.to_owned();
        let key_name = || pem.key_name.to_owned();

        let chain = read_chain(pem.certificate_name, pem.certificate)?;
        let leaf = chain.first().ok_or_else(|| PairError::NoCertificate { name: name() })?;
        let facts = Facts::read(leaf).map_err(|problem| PairError::BadCertificate {
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
                    serial: facts.serial.clone(),
                },
                TlsError::InvalidCertificate(problem) => {
                    PairError::BadCertificate { name: name(), position: 1, problem: problem.to_string() }
                }
                _ => PairError::BadKey { name: key_name() },
            })?;

        if now < facts.not_before {
            return Err(PairError::NotYetValid {
                name: name(),
                serial: facts.serial,
                not_before: rfc3339(facts.not_before),
            });
        }
        let pair = Self {
            certified: Arc::new(certified),
            serial: facts.serial,
            not_before: facts.not_before,
            not_after: facts.not_after,
        };
        match pair.expired(pem.certificate_name, now) {
            Some(error) => Err(error),
            None => Ok(pair),
        }
    }

    /// Chain and key as rustls serves them.
    pub fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    /// The chain, leaf first; never empty.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// Serial number of the leaf, hexadecimal.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// First moment of validity.
    pub const fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Last moment of validity.
    pub const fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether a client that asks for this DNS name accepts the leaf, wildcards included.
    pub fn covers(&self, dns_name: &str) -> bool {
        let Some(leaf) = self.chain().first() else {
            return false;
        };
        let Ok(leaf) = ParsedCertificate::try_from(leaf) else {
            return false;
        };
        ServerName::try_from(dns_name).is_ok_and(|name| verify_server_name(&leaf, &name).is_ok())
    }

    /// Whether both serve the same chain.
    pub fn same_chain(&self, other: &Self) -> bool {
        self.chain() == other.chain()
    }

    /// The error that says this pair's time is over, if it is.
    pub(crate) fn expired(&self, name: &str, now: SystemTime) -> Option<PairError> {
        (now > self.not_after).then(|| PairError::Expired {
            name: name.to_owned(),
            serial: self.serial.clone(),
            not_after: rfc3339(self.not_after),
        })
    }
}

/// Reads every certificate in a PEM text, and refuses the text when one of them is damaged.
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

/// Reads the first private key in a PEM text. The PEM error is dropped on purpose: it may quote the text.
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

/// The kind of damage, without the text of the file: keys and certificates may share one.
fn describe(error: &PemError) -> &'static str {
    match error {
        PemError::MissingSectionEnd { .. } => "its END line is missing",
        PemError::IllegalSectionStart { .. } => "its BEGIN line is damaged",
        PemError::Base64Decode(_) => "its base64 text is damaged",
        _ => "it is not sound PEM",
    }
}
