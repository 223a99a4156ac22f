//! What is read out of a certificate: the few facts that decisions and metrics need.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// The facts of one certificate, owned, so that the parsed borrow needn't live on.
pub(crate) struct Facts {
    /// Serial number, lower-case hexadecimal, octets parted by colons as openssl prints them.
    pub(crate) serial: String,
    /// The subject as it stands in the certificate; equal bytes, equal name.
    pub(crate) subject: Vec<u8>,
    /// The first common name of the subject.
    pub(crate) common_name: Option<String>,
    /// First moment of validity.
    pub(crate) not_before: SystemTime,
    /// Last moment of validity.
    pub(crate) not_after: SystemTime,
    /// Whether the certificate may sign others.
    pub(crate) is_authority: bool,
    /// The subject public key info.
    pub(crate) public_key: Vec<u8>,
}

impl Facts {
    /// Reads a DER certificate; the error says what is wrong with it.
    pub(crate) fn read(der: &[u8]) -> Result<Self, String> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        if !rest.is_empty() {
            return Err(format!("{} stray bytes after the certificate", rest.len()));
        }
        Ok(Self {
            serial: certificate.raw_serial_as_string(),
            subject: certificate.subject().as_raw().to_vec(),
            common_name: certificate
                .subject()
                .iter_common_name()
                .next()
                .and_then(|name| name.as_str().ok())
                .map(str::to_owned),
            not_before: moment(certificate.validity().not_before),
            not_after: moment(certificate.validity().not_after),
            is_authority: certificate.is_ca(),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }
}

/// Times before 1970 are taken as 1970: no decision here tells them apart.
fn moment(time: ASN1Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default())
}
