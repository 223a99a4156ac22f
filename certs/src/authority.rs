//! The certificate authority and the leaves it signs. Pure apart from the random numbers of key generation.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;

use crate::anchor::Anchor;
use crate::facts::Facts;
use crate::pair::{PairError, PemPair, read_chain, read_key};

/// How long an authority lives unless told otherwise: ten years.
pub const AUTHORITY_VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);

/// How long a leaf lives unless told otherwise: ninety days.
pub const LEAF_VALIDITY: Duration = Duration::from_hours(90 * 24);

/// How far back validity begins, so that machines whose clocks run behind accept a certificate made just now. Lives
/// under four hours are backdated by a quarter of themselves: more, and they would be due for renewal when made.
pub const BACKDATE: Duration = Duration::from_hours(1);

pub(crate) const AUTHORITY_NAME: &str = "Swansong webhook CA";
const LEAF_NAME: &str = "Swansong webhook";

/// Why an authority can't be used or a certificate can't be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthorityError {
    /// Certificate or key can't be read, or is outside its time.
    #[error(transparent)]
    Unreadable(#[from] PairError),
    /// The certificate may not sign others.
    #[error("{name} is not an authority's certificate (basicConstraints lacks CA:TRUE)")]
    NotAnAuthority {
        /// What was read.
        name: String,
    },
    /// The key is sound but not of a kind that signing supports here.
    #[error("{name} can't be used for signing; store it as PKCS#8 (openssl pkcs8 -topk8 -nocrypt)")]
    UnsupportedKey {
        /// What was read.
        name: String,
    },
    /// It signs, but in vain: its certificate is damaged where only a verifier notices, or doesn't allow the names.
    #[error("no certificate that it signs would be accepted: {problem}")]
    Rejected {
        /// Why not.
        problem: String,
    },
    /// The certificate library refused.
    #[error("a certificate can't be made ({problem}); check the service name and namespace")]
    Making {
        /// What it said.
        problem: String,
    },
}

impl From<rcgen::Error> for AuthorityError {
    fn from(error: rcgen::Error) -> Self {
        Self::Making { problem: error.to_string() }
    }
}

/// A certificate and key just made, as PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key, PKCS#8.
    pub key: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Issued").finish_non_exhaustive()
    }
}

/// An authority that is ready to sign.
pub struct Authority {
    anchor: Anchor,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Authority").field("id", self.anchor.id()).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new authority that is valid from an hour before `now` until `validity` after it.
    pub fn create(now: SystemTime, validity: Duration) -> Result<Issued, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = start(now, validity).into();
        params.not_after = end(now, validity).into();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Reads an authority and checks that it can sign at `now`. Of several certificates the first counts.
    pub fn from_pem(pem: &PemPair<'_>, now: SystemTime) -> Result<Self, AuthorityError> {
        let name = || pem.certificate_name.to_owned();
        let certificate = read_chain(pem.certificate_name, pem.certificate)?.swap_remove(0);
        let facts = Facts::read(&certificate).map_err(|problem| PairError::BadCertificate {
            name: name(),
            position: 1,
            problem,
        })?;
        let (public_key, serial) = (facts.public_key.clone(), facts.serial.clone());
        let anchor = Anchor::checked(pem.certificate_name, certificate, facts, now)?;
        let key = read_key(pem.key_name, pem.key)?;
        let unsupported = || AuthorityError::UnsupportedKey { name: pem.key_name.to_owned() };
        let key = KeyPair::try_from(&key).map_err(|_| unsupported())?;
        if rcgen::PublicKeyData::subject_public_key_info(&key) != public_key {
            return Err(
                PairError::KeyMismatch { name: name(), key_name: pem.key_name.to_owned(), serial }.into()
            );
        }
        let issuer = Issuer::from_ca_cert_der(anchor.certificate(), key)?;
        Ok(Self { anchor, issuer })
    }

    /// Makes a server certificate for these DNS names with a key of its own.
    ///
    /// It never outlives the authority: a chain is good only as long as each of its certificates.
    pub fn issue(
        &self,
        dns_names: &[String],
        now: SystemTime,
        validity: Duration,
    ) -> Result<Issued, AuthorityError> {
        let mut params = CertificateParams::new(dns_names)?;
        params.distinguished_name.push(DnType::CommonName, LEAF_NAME);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = start(now, validity).into();
        params.not_after = end(now, validity).min(self.not_after()).into();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Its certificate, as others trust it.
    pub const fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The authority's certificate.
    pub const fn certificate(&self) -> &CertificateDer<'static> {
        self.anchor.certificate()
    }

    /// When it ends.
    pub const fn not_after(&self) -> SystemTime {
        self.anchor.not_after()
    }
}

/// The beginning of a life that begins now, backdated; before 1970 there were no certificates.
fn start(now: SystemTime, validity: Duration) -> SystemTime {
    now.checked_sub(BACKDATE.min(validity / 4)).map_or(UNIX_EPOCH, |start| start.max(UNIX_EPOCH))
}

/// The end of a life that begins now; a certificate can't name a later moment than the end of the year 9999.
fn end(now: SystemTime, validity: Duration) -> SystemTime {
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    now.checked_add(validity).map_or(last, |end| end.min(last))
}

/// The names by which the API server calls a webhook's Service.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")]
}
