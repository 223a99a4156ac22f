//! A certificate authority (CA) and the leaves that it signs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};

use crate::certificate::{CA_COMMON_NAME, Certificate, PemPair, key_mismatch, read_key};
use crate::error::Error;

/// How far validity starts in the past, so that machines whose clocks are behind accept a new certificate.
///
/// Validities under four hours are backdated by a quarter instead, so that no new certificate is due for renewal.
pub const BACKDATE: Duration = Duration::from_hours(1);

const LEAF_NAME: &str = "Swansong webhook";

/// Which certificates the manager issues, and when it rotates them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// DNS names that the leaf covers.
    pub dns_names: Vec<String>,
    /// Validity of a CA. A third of it must be longer than [`Settings::settle_time`].
    pub ca_validity: Duration,
    /// Validity of a leaf, and so the longest time for which an earlier CA remains in the `caBundle`.
    pub leaf_validity: Duration,
    /// How long a new CA is in the `caBundle` before its leaf is served.
    ///
    /// API servers watch webhook configurations. A change reaches them within milliseconds as a rule, and within a minute
    /// or two when a watch broke without notice and has to be established again.
    pub settle_time: Duration,
    /// The difference between clocks that is tolerated: beyond it the API server's clock is used instead of this
    /// machine's, and an earlier CA remains trusted this long after its last leaf expired.
    pub clock_tolerance: Duration,
}

impl Settings {
    /// The defaults for these DNS names: a CA for ten years, leaves for ninety days, and five minutes for API servers to
    /// read the `caBundle` and between clocks.
    pub const fn new(dns_names: Vec<String>) -> Self {
        Self {
            dns_names,
            ca_validity: Duration::from_hours(10 * 365 * 24),
            leaf_validity: Duration::from_hours(90 * 24),
            settle_time: Duration::from_mins(5),
            clock_tolerance: Duration::from_mins(5),
        }
    }
}

/// A CA with its key.
pub struct CertificateAuthority {
    /// The CA's certificate.
    pub certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// Creates a CA that is valid from [`BACKDATE`] before `now` until `validity` after it.
    pub fn create(now: SystemTime, validity: Duration) -> Result<PemPair, Error> {
        let mut params = params(CA_COMMON_NAME, now, validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        sign(|key| params.self_signed(key))
    }

    /// Reads a CA and checks that it can sign at `now`. Of several certificates the first is read.
    pub fn from_pem(pem: &PemPair, name: &str, key_name: &str, now: SystemTime) -> Result<Self, Error> {
        let certificate = Certificate::ca_from_pem(name, &pem.certificate, now)?;
        let key = KeyPair::try_from(&read_key(key_name, &pem.key)?).map_err(|_| {
            let remedy = "store it as PKCS#8 (openssl pkcs8 -topk8 -nocrypt)";
            Error::new(format!("{key_name} can't be used for signing; {remedy}"))
        })?;
        if key.subject_public_key_info() != certificate.public_key {
            return Err(key_mismatch(name, key_name, &certificate.serial));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate.der, key).map_err(|error| not_issued(&error))?;
        Ok(Self { certificate, issuer })
    }

    /// Issues a server certificate for these DNS names with a new key.
    ///
    /// It expires no later than the CA, since clients check the validity of the whole chain.
    pub fn issue(&self, dns_names: &[String], now: SystemTime, validity: Duration) -> Result<PemPair, Error> {
        let mut params = params(LEAF_NAME, now, validity);
        params.subject_alt_names =
            CertificateParams::new(dns_names).map_err(|error| not_issued(&error))?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_after = params.not_after.min(self.certificate.not_after.into());
        sign(|key| params.signed_by(key, &self.issuer))
    }
}

/// A validity that starts now, backdated, within the times that certificates can represent: 1970 to 9999.
fn params(name: &str, now: SystemTime, validity: Duration) -> CertificateParams {
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before =
        now.checked_sub(BACKDATE.min(validity / 4)).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH).into();
    params.not_after = now.checked_add(validity).unwrap_or(last).min(last).into();
    params
}

fn sign(sign: impl FnOnce(&KeyPair) -> Result<rcgen::Certificate, rcgen::Error>) -> Result<PemPair, Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| not_issued(&error))?;
    let certificate = sign(&key).map_err(|error| not_issued(&error))?;
    Ok(PemPair { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() })
}

fn not_issued(error: &rcgen::Error) -> Error {
    Error::new(format!("a certificate can't be issued ({error}); check the service name and namespace"))
}

/// Returns the DNS names by which API servers call a webhook's Service.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    vec![format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")]
}
