//! What belongs into a `caBundle`, given what is in it. No I/O.

use std::time::SystemTime;

use pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::authority::Authority;
use crate::facts::Facts;

/// The bundle to set, or `None` when the authority is in it already.
///
/// A bundle is left alone as long as it contains the authority, whatever else it contains: someone may be rotating by
/// hand. When the authority is missing, authorities of the same name that are still in their time stay behind it, so
/// that replicas which still serve the leaf of the one before are trusted until they have picked up the new one.
/// Anything else that was there (a placeholder, a stranger's authority) goes.
pub fn updated(bundle: &[u8], authority: &Authority, now: SystemTime) -> Option<String> {
    let present: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect();
    if present.contains(authority.certificate()) {
        return None;
    }
    let mut text = section(authority.certificate());
    for certificate in &present {
        let kept = Facts::read(certificate).is_ok_and(|facts| {
            facts.is_authority && facts.subject == authority.subject() && now < facts.not_after
        });
        if kept {
            text.push_str(&section(certificate));
        }
    }
    Some(text)
}

fn section(certificate: &CertificateDer<'_>) -> String {
    let section = Pem::new("CERTIFICATE", certificate.as_ref());
    encode_config(&section, EncodeConfig::new().set_line_ending(LineEnding::LF))
}
