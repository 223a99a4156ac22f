//! A certificate authority (CA) and the leaves that it signs.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};

pub use crate::ca_certificate::CaError;
use crate::ca_certificate::{CA_COMMON_NAME, CaCertificate};
use crate::fields::CertificateFields;
use crate::pair::{PairError, PemPair, read_chain, read_key};

/// The default validity of a CA: ten years.
pub const CA_VALIDITY: Duration = Duration::from_hours(10 * 365 * 24);

/// The default validity of a leaf: ninety days.
pub const LEAF_VALIDITY: Duration = Duration::from_hours(90 * 24);

/// How far validity starts in the past, so that machines whose clocks are behind accept a new certificate.
///
/// Validities under four hours are backdated by a quarter instead, so that no new certificate is due for renewal.
pub const BACKDATE: Duration = Duration::from_hours(1);

const LEAF_NAME: &str = "Swansong webhook";

/// A new certificate and its key as PEM.
pub struct IssuedCertificate {
    /// The certificate as PEM.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
}

impl fmt::Debug for IssuedCertificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("IssuedCertificate").finish_non_exhaustive()
    }
}

/// A CA with its key.
pub struct CertificateAuthority {
    ca_certificate: CaCertificate,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CertificateAuthority").field("id", self.ca_certificate.id()).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Creates a CA that is valid from [`BACKDATE`] before `now` until `validity` after it.
    pub fn create(now: SystemTime, validity: Duration) -> Result<IssuedCertificate, CaError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, CA_COMMON_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = start(now, validity).into();
        params.not_after = end(now, validity).into();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.self_signed(&key)?;
        Ok(IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Reads a CA and checks that it can sign at `now`. Of several certificates the first is read.
    pub fn from_pem(pem: &PemPair<'_>, now: SystemTime) -> Result<Self, CaError> {
        let name = || pem.certificate_name.to_owned();
        let certificate = read_chain(pem.certificate_name, pem.certificate)?.swap_remove(0);
        let fields = CertificateFields::parse(&certificate).map_err(|problem| PairError::BadCertificate {
            name: name(),
            position: 1,
            problem,
        })?;
        let (public_key, serial) = (fields.public_key.clone(), fields.serial.clone());
        let ca_certificate = CaCertificate::checked(pem.certificate_name, certificate, fields, now)?;
        let key = read_key(pem.key_name, pem.key)?;
        let unsupported = || CaError::UnsupportedKey { name: pem.key_name.to_owned() };
        let key = KeyPair::try_from(&key).map_err(|_| unsupported())?;
        if rcgen::PublicKeyData::subject_public_key_info(&key) != public_key {
            return Err(
                PairError::KeyMismatch { name: name(), key_name: pem.key_name.to_owned(), serial }.into()
            );
        }
        let issuer = Issuer::from_ca_cert_der(ca_certificate.certificate(), key)?;
        Ok(Self { ca_certificate, issuer })
    }

    /// Issues a server certificate for these DNS names with a new key.
    ///
    /// It expires no later than the CA, since clients check the validity of the whole chain.
    pub fn issue(
        &self,
        dns_names: &[String],
        now: SystemTime,
        validity: Duration,
    ) -> Result<IssuedCertificate, CaError> {
        let mut params = CertificateParams::new(dns_names)?;
        params.distinguished_name.push(DnType::CommonName, LEAF_NAME);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = start(now, validity).into();
        params.not_after = end(now, validity).min(self.ca_certificate.not_after()).into();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(IssuedCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Returns the CA's certificate.
    pub const fn ca_certificate(&self) -> &CaCertificate {
        &self.ca_certificate
    }
}

/// Returns the backdated start of a validity that starts now, no earlier than 1970.
fn start(now: SystemTime, validity: Duration) -> SystemTime {
    now.checked_sub(BACKDATE.min(validity / 4)).map_or(UNIX_EPOCH, |start| start.max(UNIX_EPOCH))
}

/// Returns the end of a validity that starts now. Certificates can't represent times after the year 9999.
fn end(now: SystemTime, validity: Duration) -> SystemTime {
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    now.checked_add(validity).map_or(last, |end| end.min(last))
}

/// Returns the DNS names by which API servers call a webhook's Service.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")]
}
