use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::verify_server_name;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};

use crate::certificate::{
    Certificate, PemPair, damaged, key_mismatch, read_chain, read_key, to_pem, unusable_key,
};
use crate::error::Error;

/// A certificate chain whose key matches and that was valid when it was read.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The first certificate of the chain.
    pub leaf: Certificate,
    /// The chain and key in the form that rustls serves. The chain is never empty.
    pub certified: Arc<CertifiedKey>,
}

impl Pair {
    /// Reads a pair and checks it as of `now`. The names are those of certificate and key in errors.
    ///
    /// Of the chain only the leaf's validity is checked: chains with an expired cross-signed root are legitimate.
    pub fn from_pem(pem: &PemPair, name: &str, key_name: &str, now: SystemTime) -> Result<Self, Error> {
        let chain = read_chain(name, &pem.certificate)?;
        let leaf = Certificate::parse(&chain[0]).map_err(|problem| damaged(name, 1, &problem))?;
        let key = read_key(key_name, &pem.key)?;
        let certified =
            CertifiedKey::from_der(chain, key, &default_provider()).map_err(|error| match error {
                TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                    key_mismatch(name, key_name, &leaf.serial)
                }
                TlsError::InvalidCertificate(problem) => damaged(name, 1, &problem.to_string()),
                _ => unusable_key(key_name),
            })?;
        leaf.check_validity(name, now)?;
        Ok(Self { leaf, certified: Arc::new(certified) })
    }

    /// Returns the chain as PEM with Unix line ends.
    pub fn chain_pem(&self) -> String {
        self.certified.cert.iter().map(to_pem).collect()
    }

    /// Returns whether the leaf is valid for this DNS name; wildcards count.
    pub fn covers(&self, dns_name: &str) -> bool {
        let (Ok(leaf), Ok(name)) =
            (ParsedCertificate::try_from(&self.leaf.der), ServerName::try_from(dns_name))
        else {
            return false;
        };
        verify_server_name(&leaf, &name).is_ok()
    }
}
