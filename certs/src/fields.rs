//! The fields of an X.509 certificate that decisions and metrics need.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// Fields of one certificate, owned.
pub(crate) struct CertificateFields {
    /// Lower-case hexadecimal with colons, as openssl prints it.
    pub(crate) serial: String,
    /// DER of the subject; equal bytes mean equal names.
    pub(crate) subject: Vec<u8>,
    pub(crate) common_name: Option<String>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    /// Whether the certificate may sign others.
    pub(crate) is_ca: bool,
    /// DER of the subject public key info.
    pub(crate) public_key: Vec<u8>,
}

impl CertificateFields {
    /// Parses a DER certificate. The error describes the damage.
    pub(crate) fn parse(der: &[u8]) -> Result<Self, String> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err(format!("{} stray bytes after the certificate", rest.len()));
        }
        let common_name = certificate.subject().iter_common_name().next();
        Ok(Self {
            serial: certificate.raw_serial_as_string(),
            subject: certificate.subject().as_raw().to_vec(),
            common_name: common_name.and_then(|name| name.as_str().ok()).map(str::to_owned),
            not_before: system_time(certificate.validity().not_before),
            not_after: system_time(certificate.validity().not_after),
            is_ca: certificate.is_ca(),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }
}

/// Times before 1970 become 1970, which changes no decision.
fn system_time(time: ASN1Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default())
}
