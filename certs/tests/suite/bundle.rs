//! What a `caBundle` becomes.

use swansong_certs::bundle::updated;
use swansong_certs::{Authority, Issued};

use crate::support::{DAY, authority_of, leaf, start};

fn made(days: u32) -> Issued {
    Authority::create(start(), days * DAY).unwrap()
}

fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[test]
fn a_bundle_that_contains_the_authority_is_left_alone_whatever_else_it_holds() {
    let ours = made(10);
    let authority = authority_of(&ours, start());
    let other = made(10);
    for bundle in [
        ours.certificate.clone(),
        format!("{}{}", other.certificate, ours.certificate),
        format!("# by hand\r\n{}", ours.certificate.replace('\n', "\r\n")),
    ] {
        assert_eq!(updated(bundle.as_bytes(), &authority, start()), None);
    }
}

#[test]
fn placeholders_strangers_and_the_expired_go_and_a_predecessor_stays() {
    let ours = made(10);
    let authority = authority_of(&ours, start() + 2 * DAY);
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
        let text = updated(bundle.as_bytes(), &authority, now).unwrap();
        assert!(text.starts_with(&ours.certificate.replace("\r\n", "\n")), "{row}");
        assert_eq!(count(&text), certificates, "{row}");
        assert_eq!(updated(text.as_bytes(), &authority, now), None, "{row}");
    }
}
