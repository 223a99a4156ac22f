//! The desired content of a `caBundle`. No I/O.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::certificate::{CaId, Certificate, to_pem};
use crate::rotation::ObservedBundle;
use crate::secret_data::TrustedCas;

/// Returns the desired content, or `None` if the bundle has it.
///
/// - Trusted CAs are added, the one in use first.
/// - Related CAs that are retired or expired are removed. Other related CAs remain until the Secret has adopted them:
///   replicas may still serve their leaves.
/// - Other certificates remain if the CA in use is in the bundle, since a user may be switching webhooks, and are
///   removed otherwise, as a placeholder is.
pub fn updated(bundle: &[u8], cas: &TrustedCas, now: SystemTime) -> Option<String> {
    let present = certificates(bundle);
    let desired: Vec<&Certificate> = cas.desired(now).collect();
    let has = |ca: &Certificate| present.contains(&ca.der);
    let has_current = has(&cas.current);
    let kept: Vec<&CertificateDer<'_>> = present
        .iter()
        .filter(|certificate| desired.iter().all(|ca| ca.der != **certificate))
        .filter(|certificate| match related(certificate, cas) {
            Some(ca) => !ca.has_expired(now) && !cas.retired.contains(&ca.id),
            None => has_current,
        })
        .collect();
    if desired.iter().all(|ca| has(ca)) && kept.len() + desired.len() == present.len() {
        return None;
    }
    let all = desired.iter().map(|ca| &ca.der).chain(kept);
    Some(all.map(to_pem).collect())
}

/// Observes the bundles of all webhooks of a configuration.
pub fn observe<'a>(bundles: impl IntoIterator<Item = &'a [u8]>, cas: &TrustedCas) -> ObservedBundle {
    let mut in_all: Option<Vec<CaId>> = None;
    let mut unlisted: Vec<Certificate> = Vec::new();
    for bundle in bundles {
        let present = certificates(bundle);
        let ids: Vec<CaId> = present.iter().map(|certificate| CaId::of(certificate)).collect();
        in_all = Some(match in_all {
            None => ids,
            Some(before) => before.into_iter().filter(|id| ids.contains(id)).collect(),
        });
        for ca in present.iter().filter_map(|certificate| related(certificate, cas)) {
            if !cas.lists(&ca.id) && !unlisted.contains(&ca) {
                unlisted.push(ca);
            }
        }
    }
    ObservedBundle { in_all: in_all.unwrap_or_default(), unlisted }
}

fn certificates(bundle: &[u8]) -> Vec<CertificateDer<'_>> {
    CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect()
}

fn related(certificate: &CertificateDer<'_>, cas: &TrustedCas) -> Option<Certificate> {
    Certificate::ca_from_der(certificate).filter(|ca| ca.is_related_to(&cas.current))
}
