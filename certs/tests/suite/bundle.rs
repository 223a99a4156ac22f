//! What a `caBundle` becomes.

use swansong_certs::bundle::{updated, view};
use swansong_certs::{Anchor, Authority, Issued, Trust};

use crate::support::{DAY, leaf, start};

fn anchor(issued: &Issued) -> Anchor {
    Anchor::from_pem("ca.crt", issued.certificate.as_bytes(), start()).unwrap()
}

fn trust(current: &Issued) -> Trust {
    Trust { current: anchor(current), next: None, previous: Vec::new(), retired: Vec::new() }
}

fn made(days: u32) -> Issued {
    Authority::create(start(), days * DAY).unwrap()
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[test]
fn a_bundle_that_contains_the_authority_is_left_alone_whatever_else_it_holds() {
    let ours = made(10);
    let trust = trust(&ours);
    let other = made(10);
    for bundle in [
        ours.certificate.clone(),
        format!("{}{}", other.certificate, ours.certificate),
        format!("# by hand\r\n{}", ours.certificate.replace('\n', "\r\n")),
    ] {
        assert_eq!(updated(bundle.as_bytes(), &trust, start()), None);
    }
}

#[test]
fn placeholders_strangers_and_the_expired_go_and_a_predecessor_stays() {
    let ours = made(10);
    let trust = trust(&ours);
    let predecessor = made(5);
    let expired = made(1);
    let stranger = leaf();
    let rows = [
        ("nothing", String::new(), 1),
        ("a placeholder", "\n".to_owned(), 1),
        ("garbage", "-----BEGIN CERTIFICATE-----\nx".to_owned(), 1),
        ("a leaf", stranger.certificate.clone(), 1),
        ("an expired predecessor", expired.certificate.clone(), 1),
        ("a predecessor", predecessor.certificate.clone(), 2),
    ];
    for (row, bundle, certificates) in rows {
        let now = start() + 2 * DAY;
        let text = updated(bundle.as_bytes(), &trust, now).unwrap();
        assert!(text.starts_with(&ours.certificate.replace("\r\n", "\n")), "{row}");
        assert_eq!(count(&text), certificates, "{row}");
        assert_eq!(updated(text.as_bytes(), &trust, now), None, "{row}");
    }
}

#[test]
fn what_the_secret_wants_comes_first_and_what_it_gave_up_goes() {
    let [current, next, past, gone, unknown] = [(); 5].map(|()| made(10));
    let stranger = made_by_hand();
    let mut trust = trust(&current);
    trust.next = Some(anchor(&next));
    trust.previous = vec![anchor(&past)];
    trust.retired = vec![anchor(&gone).id().clone()];
    let order = |parts: &[&Issued]| {
        parts.iter().map(|part| part.certificate.replace("\r\n", "\n")).collect::<String>()
    };

    let bundle = order(&[&gone, &stranger, &unknown, &current]);
    let text = updated(bundle.as_bytes(), &trust, start()).unwrap();
    assert_eq!(text, order(&[&current, &next, &past, &stranger, &unknown]));
    assert_eq!(updated(text.as_bytes(), &trust, start()), None);

    let twice = format!("{text}{text}");
    assert_eq!(updated(twice.as_bytes(), &trust, start()).as_ref().map(|text| count(text)), Some(7));

    // Without ours in it, the stranger was not put there beside ours.
    let bundle = order(&[&stranger, &gone]);
    let text = updated(bundle.as_bytes(), &trust, start()).unwrap();
    assert_eq!(text, order(&[&current, &next, &past]));
}

#[test]
fn a_view_tells_what_is_everywhere_and_what_nobody_knows() {
    let [current, next, gone, unknown] = [(); 4].map(|()| made(10));
    let stranger = made_by_hand();
    let mut trust = trust(&current);
    trust.next = Some(anchor(&next));
    trust.retired = vec![anchor(&gone).id().clone()];
    let one = format!("{}{}{}", current.certificate, next.certificate, unknown.certificate);
    let two = format!("{}{}{}", gone.certificate, stranger.certificate, current.certificate);
    let view = view([one.as_bytes(), two.as_bytes()], &trust);
    assert_eq!(view.everywhere, [anchor(&current).id().clone()]);
    assert_eq!(view.strays, [anchor(&unknown)]);
}

/// An authority that someone made for something else.
fn made_by_hand() -> Issued {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "by hand");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = (start() - DAY).into();
    params.not_after = (start() + DAY).into();
    let key = rcgen::KeyPair::generate().unwrap();
    Issued { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}
