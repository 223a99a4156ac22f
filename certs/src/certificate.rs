//! Reading certificates and keys.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::error::Error;

pub(crate) const CA_COMMON_NAME: &str = "Swansong webhook CA";

/// A certificate chain and its private key as PEM; a part that is absent is empty.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct PemPair {
    /// The chain, leaf first.
    pub certificate: Vec<u8>,
    /// The private key: PKCS#8, SEC1 or PKCS#1.
    pub key: Vec<u8>,
}

impl PemPair {
    /// Returns whether both parts are absent.
    pub const fn is_empty(&self) -> bool {
        self.certificate.is_empty() && self.key.is_empty()
    }
}

impl fmt::Debug for PemPair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PemPair").field("certificate", &self.certificate.len()).finish_non_exhaustive()
    }
}

/// The ID of a certificate: the first eight octets of its SHA-256 digest in hexadecimal, enough to distinguish the CAs of
/// one cluster.
///
/// Serial numbers aren't unique: CAs made by hand often have the serial 0 or 1.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CaId(String);

impl CaId {
    /// Computes the ID of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = Sha256::digest(certificate);
        Self(format!("{:016x}", digest.first_chunk().map_or(0, |octets| u64::from_be_bytes(*octets))))
    }

    /// Parses an ID, or returns `None` if the text has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for CaId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A parsed certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// The certificate as DER.
    pub der: CertificateDer<'static>,
    /// The digest that names it in annotations and events.
    pub id: CaId,
    /// Serial number, lower-case hexadecimal with colons, as openssl prints it.
    pub serial: String,
    /// Start of its validity.
    pub not_before: SystemTime,
    /// End of its validity.
    pub not_after: SystemTime,
    /// Whether it may sign others.
    is_ca: bool,
    /// DER of the subject; equal bytes mean equal names.
    subject: Vec<u8>,
    has_our_name: bool,
    /// DER of the subject public key info.
    pub(crate) public_key: Vec<u8>,
}

impl Certificate {
    /// Reads a CA certificate and checks that it is valid at `now`. Of several certificates the first is read.
    pub fn ca_from_pem(name: &str, pem: &[u8], now: SystemTime) -> Result<Self, Error> {
        let certificate =
            Self::parse(&read_chain(name, pem)?[0]).map_err(|problem| damaged(name, 1, &problem))?;
        if !certificate.is_ca {
            let problem = "is not a CA certificate (basicConstraints lacks CA:TRUE)";
            return Err(Error::new(format!("{name} {problem}")));
        }
        certificate.check_validity(name, now)?;
        Ok(certificate)
    }

    /// Parses DER, or returns `None` if it isn't the certificate of a CA.
    pub(crate) fn ca_from_der(der: &CertificateDer<'_>) -> Option<Self> {
        Self::parse(der).ok().filter(|certificate| certificate.is_ca)
    }

    /// Parses DER. The error describes the damage.
    pub(crate) fn parse(der: &CertificateDer<'_>) -> Result<Self, String> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err(format!("{} stray bytes after the certificate", rest.len()));
        }
        let subject = certificate.subject();
        let common_name = subject.iter_common_name().next().and_then(|name| name.as_str().ok());
        Ok(Self {
            id: CaId::of(der),
            serial: certificate.raw_serial_as_string(),
            not_before: system_time(certificate.validity().not_before),
            not_after: system_time(certificate.validity().not_after),
            is_ca: certificate.is_ca(),
            subject: subject.as_raw().to_vec(),
            has_our_name: common_name == Some(CA_COMMON_NAME),
            public_key: certificate.public_key().raw.to_vec(),
            der: der.clone().into_owned(),
        })
    }

    /// Returns whether its validity has ended.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        now > self.not_after
    }

    pub(crate) fn check_validity(&self, name: &str, now: SystemTime) -> Result<(), Error> {
        let serial = &self.serial;
        if now < self.not_before {
            let from = timestamp(self.not_before);
            return Err(Error::new(format!(
                "{name} (serial {serial}) is valid only from {from}; check this machine's clock, or issue it again"
            )));
        }
        if self.has_expired(now) {
            let not_after = timestamp(self.not_after);
            return Err(Error::new(format!("{name} (serial {serial}) expired at {not_after}; renew it")));
        }
        Ok(())
    }

    /// Returns whether this CA is for the same purpose as `current`: this crate created it, or the subjects are equal.
    pub(crate) fn is_related_to(&self, current: &Self) -> bool {
        self.has_our_name || self.subject == current.subject
    }

    /// Encodes the certificate as PEM with Unix line ends.
    pub(crate) fn to_pem(&self) -> String {
        to_pem(&self.der)
    }
}

pub(crate) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let section = Pem::new("CERTIFICATE", certificate.as_ref());
    encode_config(&section, EncodeConfig::new().set_line_ending(LineEnding::LF))
}

/// Reads all certificates of a PEM text, at least one. One damaged certificate is an error for the whole text.
pub(crate) fn read_chain(name: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        chain.push(certificate.map_err(|error| {
            // The error may quote the file, which may contain the key as well.
            let problem = match error {
                PemError::MissingSectionEnd { .. } => "its END line is missing",
                PemError::IllegalSectionStart { .. } => "its BEGIN line is damaged",
                PemError::Base64Decode(_) => "its base64 text is damaged",
                _ => "it is not valid PEM",
            };
            damaged(name, chain.len() + 1, problem)
        })?);
    }
    if chain.is_empty() {
        return Err(Error::new(format!(
            "{name} holds no certificate; put the server's certificate there as PEM, intermediates after it"
        )));
    }
    Ok(chain)
}

/// The certificate at this position of a chain, from 1, is damaged.
pub(crate) fn damaged(name: &str, position: usize, problem: &str) -> Error {
    Error::new(format!(
        "{name}, certificate {position}, can't be read ({problem}); write the file again, whole"
    ))
}

/// Reads the first private key of a PEM text. The PEM error is dropped on purpose: it may quote the text.
pub(crate) fn read_key(name: &str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    const ENCRYPTED: [&[u8]; 2] = [b"BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
    if ENCRYPTED.iter().any(|mark| pem.windows(mark.len()).any(|part| part == *mark)) {
        return Err(Error::new(format!(
            "{name} is encrypted; store it without a passphrase (openssl pkey -in OLD -out NEW)"
        )));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        PemError::NoItemsFound => Error::new(format!(
            "{name} holds no private key; put the key there as PEM (PKCS#8, SEC1 or PKCS#1)"
        )),
        _ => unusable_key(name),
    })
}

pub(crate) fn unusable_key(name: &str) -> Error {
    Error::new(format!(
        "{name} can't be used as a private key; write it again, whole, as ECDSA P-256/P-384, Ed25519 or RSA of 2048 bits \
         or more"
    ))
}

/// The key belongs to another certificate, for example while only one of two files has been replaced.
pub(crate) fn key_mismatch(name: &str, key_name: &str, serial: &str) -> Error {
    Error::new(format!(
        "{key_name} is not the key of the first certificate in {name} (serial {serial}); replace both together, and put \
         the server's own certificate first"
    ))
}

/// Times before 1970 become 1970, which changes no decision.
fn system_time(time: ASN1Time) -> SystemTime {
    SystemTime::from(time.to_datetime()).max(UNIX_EPOCH)
}

/// Converts a time to whole seconds, the resolution of certificates, for logs and annotations.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let at = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
