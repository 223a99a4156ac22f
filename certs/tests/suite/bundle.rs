//! Updates of a `caBundle`.

use swansong_certs::bundle::{observe, updated};
use swansong_certs::{Certificate, PreviousCa, TrustedCas};

use crate::support::{DAY, IssuedCertificate, create_ca, leaf, start};

fn ca_certificate(issued: &IssuedCertificate) -> Certificate {
    Certificate::ca_from_pem("ca.crt", issued.certificate.as_bytes(), start()).unwrap()
}

fn trusting(current: &IssuedCertificate) -> TrustedCas {
    TrustedCas { current: ca_certificate(current), next: None, previous: Vec::new(), retired: Vec::new() }
}

fn made(days: u32) -> IssuedCertificate {
    create_ca(start(), days * DAY)
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[test]
fn keeps_a_bundle_that_contains_the_ca() {
    let ours = made(10);
    let cas = trusting(&ours);
    let other = made(10);
    for bundle in [
        ours.certificate.clone(),
        format!("{}{}", other.certificate, ours.certificate),
        format!("# by hand\r\n{}", ours.certificate.replace('\n', "\r\n")),
    ] {
        assert_eq!(updated(bundle.as_bytes(), &cas, start()), None);
    }
}

#[test]
fn removes_placeholders_and_expired_cas_and_keeps_related_ones() {
    let ours = made(10);
    let cas = trusting(&ours);
    let related = made(5);
    let expired = made(1);
    let unrelated = leaf();
    let rows = [
        ("nothing", String::new(), 1),
        ("a placeholder", "\n".to_owned(), 1),
        ("garbage", "-----BEGIN CERTIFICATE-----\nx".to_owned(), 1),
        ("a leaf", unrelated.certificate.clone(), 1),
        ("an expired related CA", expired.certificate.clone(), 1),
        ("a related CA", related.certificate.clone(), 2),
    ];
    for (row, bundle, certificates) in rows {
        let now = start() + 2 * DAY;
        let text = updated(bundle.as_bytes(), &cas, now).unwrap();
        assert!(text.starts_with(&ours.certificate.replace("\r\n", "\n")), "{row}");
        assert_eq!(count(&text), certificates, "{row}");
        assert_eq!(updated(text.as_bytes(), &cas, now), None, "{row}");
    }
}

#[test]
fn puts_desired_cas_first_and_removes_retired_ones() {
    let [current, next, past, gone, unknown] = [(); 5].map(|()| made(10));
    let unrelated = made_by_hand();
    let mut cas = trusting(&current);
    cas.next = Some(ca_certificate(&next));
    cas.previous = vec![PreviousCa { certificate: ca_certificate(&past), trusted_until: None }];
    cas.retired = vec![ca_certificate(&gone).id.clone()];
    let order = |parts: &[&IssuedCertificate]| {
        parts.iter().map(|part| part.certificate.replace("\r\n", "\n")).collect::<String>()
    };

    let bundle = order(&[&gone, &unrelated, &unknown, &current]);
    let text = updated(bundle.as_bytes(), &cas, start()).unwrap();
    assert_eq!(text, order(&[&current, &next, &past, &unrelated, &unknown]));
    assert_eq!(updated(text.as_bytes(), &cas, start()), None);

    let twice = format!("{text}{text}");
    assert_eq!(updated(twice.as_bytes(), &cas, start()).as_ref().map(|text| count(text)), Some(7));

    // Without the current CA, the unrelated certificate is a placeholder.
    let bundle = order(&[&unrelated, &gone]);
    let text = updated(bundle.as_bytes(), &cas, start()).unwrap();
    assert_eq!(text, order(&[&current, &next, &past]));
}

#[test]
fn observes_cas_in_all_bundles_and_unlisted_ones() {
    let [current, next, gone, unknown] = [(); 4].map(|()| made(10));
    let unrelated = made_by_hand();
    let mut cas = trusting(&current);
    cas.next = Some(ca_certificate(&next));
    cas.retired = vec![ca_certificate(&gone).id.clone()];
    let one = format!("{}{}{}", current.certificate, next.certificate, unknown.certificate);
    let two = format!("{}{}{}", gone.certificate, unrelated.certificate, current.certificate);
    let observed = observe([one.as_bytes(), two.as_bytes()], &cas);
    assert_eq!(observed.in_all, [ca_certificate(&current).id.clone()]);
    assert_eq!(observed.unlisted, [ca_certificate(&unknown)]);
}

/// A CA for another purpose.
fn made_by_hand() -> IssuedCertificate {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "by hand");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = (start() - DAY).into();
    params.not_after = (start() + DAY).into();
    let key = rcgen::KeyPair::generate().unwrap();
    IssuedCertificate { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}
