//! What belongs into a `caBundle`, given what is in it. No I/O.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::anchor::{Anchor, AuthorityId};
use crate::content::{Trust, section};
use crate::rotation::BundleView;

/// The bundle to set, or `None` when it is as it should be.
///
/// - What is to be trusted is added, the authority in use first.
/// - Authorities like ours that were given up or whose life is over go. Others like ours stay until the Secret has
///   adopted them: replicas may still serve their leaves.
/// - Anything else (a placeholder, a stranger's authority) stays when the authority in use is there, since someone may
///   be changing webhooks by hand, and goes when it is missing.
pub fn updated(bundle: &[u8], trust: &Trust, now: SystemTime) -> Option<String> {
    let present = certificates(bundle);
    let wanted: Vec<&Anchor> = trust.wanted(now).collect();
    let has = |anchor: &Anchor| present.contains(anchor.certificate());
    let ours = has(&trust.current);
    let kept: Vec<&CertificateDer<'_>> = present
        .iter()
        .filter(|certificate| wanted.iter().all(|anchor| anchor.certificate() != *certificate))
        .filter(|certificate| match kin(certificate, trust) {
            Some(anchor) => !anchor.ended(now) && !trust.retired.contains(anchor.id()),
            None => ours,
        })
        .collect();
    if wanted.iter().all(|anchor| has(anchor)) && kept.len() + wanted.len() == present.len() {
        return None;
    }
    let all = wanted.iter().map(|anchor| anchor.certificate()).chain(kept);
    Some(all.map(section).collect())
}

/// What a replica should remember of the bundles of all webhooks in a configuration.
pub fn view<'a>(bundles: impl IntoIterator<Item = &'a [u8]>, trust: &Trust) -> BundleView {
    let mut everywhere: Option<Vec<AuthorityId>> = None;
    let mut strays: Vec<Anchor> = Vec::new();
    for bundle in bundles {
        let present = certificates(bundle);
        let ids: Vec<AuthorityId> = present.iter().map(|certificate| AuthorityId::of(certificate)).collect();
        everywhere = Some(match everywhere {
            None => ids,
            Some(before) => before.into_iter().filter(|id| ids.contains(id)).collect(),
        });
        for anchor in present.iter().filter_map(|certificate| kin(certificate, trust)) {
            if !trust.knows(anchor.id()) && !strays.contains(&anchor) {
                strays.push(anchor);
            }
        }
    }
    BundleView { everywhere: everywhere.unwrap_or_default(), strays }
}

fn certificates(bundle: &[u8]) -> Vec<CertificateDer<'_>> {
    CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect()
}

fn kin(certificate: &CertificateDer<'_>, trust: &Trust) -> Option<Anchor> {
    Anchor::from_der(certificate).filter(|anchor| anchor.is_kin_of(&trust.current))
}
