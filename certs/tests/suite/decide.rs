//! Decisions about the content of a Secret.

use std::time::{Duration, SystemTime};

use proptest::prelude::{ProptestConfig, any, proptest};
use rcgen::{BasicConstraints, CertificateParams, GeneralSubtree, IsCa, KeyPair, NameConstraints};
use swansong_certs::{Decision, PemPair, SecretData, service_names};

use crate::support::{DAY, NAME, apply_changed, ca_of, create_ca, fresh, leaf, settings, start};

fn decide(data: &SecretData, now: SystemTime) -> Decision {
    swansong_certs::decide(NAME, Some(data), now, &settings())
}

/// The kinds of reasons, by a part of their text.
const REASONS: [(&str, &str); 14] = [
    ("there was none", "absent"),
    ("its CA is new", "new CA"),
    ("is not valid for", "other names"),
    ("rejected by a client", "rejected"),
    ("the previous one expires at", "due"),
    ("requests it", "requested"),
    ("holds no certificate", "no certificate"),
    ("can't be read", "bad certificate"),
    ("holds no private key", "no key"),
    ("can't be used as a private key", "bad key"),
    ("is not the key of", "mismatch"),
    ("valid only from", "not yet valid"),
    ("expired at", "expired"),
    ("is not a CA certificate", "not a CA"),
];

/// A decision in one line for tables.
fn summary(decision: &Decision) -> String {
    let (action, reason) = match decision {
        Decision::Keep(_) => return "keep".to_owned(),
        Decision::IssueLeaf(reason) => ("leaf", reason),
        Decision::IssueAll(reason) => ("all", reason),
        Decision::Announce(reason) => ("announce", reason),
        other => panic!("{other:?}"),
    };
    let kinds = REASONS.iter().filter(|(text, _)| reason.contains(text));
    let kinds: Vec<&str> = kinds.map(|(_, kind)| *kind).collect();
    assert_eq!(kinds.len(), 1, "{reason}");
    format!("{action}: {}", kinds[0])
}

#[test]
fn keeps_a_valid_secret_and_replaces_only_damaged_parts() {
    let valid = fresh(&settings(), start()).data;
    let other = fresh(&settings(), start()).data;
    let unrelated = leaf();
    let change = |change: &dyn Fn(&mut SecretData)| {
        let mut data = valid.clone();
        change(&mut data);
        data
    };
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let rows: Vec<(&str, SecretData, &str)> = vec![
        ("valid", valid.clone(), "keep"),
        ("empty", SecretData::default(), "all: absent"),
        ("no ca.crt", change(&|data| data.ca.certificate.clear()), "all: no certificate"),
        ("no ca.key", change(&|data| data.ca.key.clear()), "announce: no key"),
        (
            "damaged ca.crt",
            change(&|data| data.ca.certificate = half(&data.ca.certificate)),
            "all: bad certificate",
        ),
        ("damaged ca.key", change(&|data| data.ca.key = half(&data.ca.key)), "announce: bad key"),
        ("garbage ca.key", change(&|data| data.ca.key = b"garbage".to_vec()), "announce: no key"),
        ("another's ca.key", change(&|data| data.ca.key.clone_from(&other.ca.key)), "announce: mismatch"),
        (
            "leaf as CA",
            change(&|data| {
                data.ca.certificate.clone_from(&data.leaf.certificate);
                data.ca.key.clone_from(&data.leaf.key);
            }),
            "all: not a CA",
        ),
        (
            "no leaf",
            change(&|data| {
                data.leaf.certificate.clear();
                data.leaf.key.clear();
            }),
            "leaf: absent",
        ),
        ("no tls.crt", change(&|data| data.leaf.certificate.clear()), "leaf: no certificate"),
        ("no tls.key", change(&|data| data.leaf.key.clear()), "leaf: no key"),
        (
            "damaged tls.crt",
            change(&|data| data.leaf.certificate = half(&data.leaf.certificate)),
            "leaf: bad certificate",
        ),
        ("damaged tls.key", change(&|data| data.leaf.key = half(&data.leaf.key)), "leaf: bad key"),
        ("another's tls.key", change(&|data| data.leaf.key.clone_from(&other.leaf.key)), "leaf: mismatch"),
        (
            "leaf of another CA",
            change(&|data| {
                data.leaf.certificate.clone_from(&other.leaf.certificate);
                data.leaf.key.clone_from(&other.leaf.key);
            }),
            "leaf: rejected",
        ),
        (
            "leaf that lacks a name",
            change(&|data| {
                data.leaf.certificate = unrelated.certificate.clone().into_bytes();
                data.leaf.key = unrelated.key.clone().into_bytes();
            }),
            "leaf: other names",
        ),
    ];
    for (row, data, expected) in rows {
        assert_eq!(summary(&decide(&data, start())), expected, "{row}");
    }
    assert_eq!(summary(&swansong_certs::decide(NAME, None, start(), &settings())), "all: absent");
}

#[test]
fn decides_by_validity() {
    let valid = fresh(&settings(), start()).data;
    let hour = DAY / 24;
    // The leaf is valid for ninety days and the hour by which it is backdated.
    let due = start() - hour + (90 * DAY + hour) / 3 * 2;
    let rows = [
        ("before the backdating", start() - 2 * hour, "all: not yet valid"),
        ("with a clock an hour behind", start() - hour, "keep"),
        ("just before two thirds", due - DAY / 86_400, "keep"),
        ("at two thirds", due, "leaf: due"),
        ("after it expired", start() + 91 * DAY, "leaf: expired"),
        ("after the CA expired", start() + 3651 * DAY, "all: expired"),
    ];
    for (row, now, expected) in rows {
        assert_eq!(summary(&decide(&valid, now)), expected, "{row}");
    }
}

#[test]
fn does_not_renew_a_leaf_that_expires_with_its_ca() {
    let valid = fresh(&settings(), start()).data;
    let late = start() + 3640 * DAY;
    let last = apply_changed(decide(&valid, late), Some(&valid), late, &settings());
    assert_eq!(last.verified.pair.leaf.not_after, last.verified.cas.current.not_after);
    assert_eq!(summary(&decide(&last.data, late + 9 * DAY)), "announce: due");
}

#[test]
fn replaces_a_ca_whose_leaves_are_rejected() {
    let valid = fresh(&settings(), start()).data;
    // A CA that may sign only for other names.
    let mut narrow = CertificateParams::default();
    narrow.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    narrow.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".to_owned())],
        excluded_subtrees: Vec::new(),
    });
    let key = KeyPair::generate().unwrap();
    let mut data = valid.clone();
    data.ca.certificate = narrow.self_signed(&key).unwrap().pem().into_bytes();
    data.ca.key = key.serialize_pem().into_bytes();

    let decision = decide(&data, start());
    assert_eq!(summary(&decision), "leaf: rejected");
    let next = apply_changed(decision, Some(&data), start(), &settings());
    assert_ne!(next.data.ca.certificate, data.ca.certificate);
    let text = next.events[0].to_string();
    assert!(text.contains("no certificate that it signs would be accepted"), "{text}");
}

#[test]
fn issues_a_leaf_of_the_same_ca_for_a_new_service_name() {
    let valid = fresh(&settings(), start()).data;
    let mut renamed = settings();
    renamed.dns_names = service_names("swansong", "elsewhere");
    let decision = swansong_certs::decide(NAME, Some(&valid), start(), &renamed);
    assert_eq!(summary(&decision), "leaf: other names");
    let next = apply_changed(decision, Some(&valid), start(), &renamed);
    assert_eq!(next.data.ca.certificate, valid.ca.certificate);
    assert_eq!(next.data.ca.key, valid.ca.key);
    assert!(next.verified.pair.covers("swansong.elsewhere.svc"));
    assert_eq!(next.events.len(), 1);
}

#[test]
fn invalid_dns_names_are_an_error() {
    let ca = ca_of(&create_ca(start(), 10 * DAY), start());
    let long = service_names(&"s".repeat(63), &"n".repeat(63));
    ca.issue(&long, start(), DAY).unwrap();
    let error = ca.issue(&["späť.svc".to_owned()], start(), DAY).unwrap_err();
    assert!(error.to_string().contains("check the service name"), "{error}");
}

#[test]
fn limits_validity_to_the_calendar() {
    let mut endless = settings();
    endless.ca_validity = Duration::MAX;
    endless.leaf_validity = Duration::MAX;
    let made = fresh(&endless, start());
    assert_eq!(made.verified.pair.leaf.not_after, made.verified.cas.current.not_after);
}

#[test]
fn debug_output_contains_no_key() {
    let made = fresh(&settings(), start());
    let key = String::from_utf8(made.data.leaf.key.clone()).unwrap();
    let secret_line = key.lines().nth(1).unwrap();
    let shown = format!("{made:?} {:?} {:?}", decide(&made.data, start()), made.data.leaf);
    assert!(!shown.contains(secret_line) && !shown.contains("PRIVATE"), "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// A decision about damaged content leads to content that the next check keeps.
    #[test]
    fn keeps_what_it_issues(part in 0_usize..4, cut in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut data = fresh(&settings(), start()).data;
        let bytes = match part {
            0 => &mut data.ca.certificate,
            1 => &mut data.ca.key,
            2 => &mut data.leaf.certificate,
            _ => &mut data.leaf.key,
        };
        let at = cut.index(bytes.len());
        bytes[at] = byte;
        let decision = decide(&data, start());
        if !matches!(decision, Decision::Keep(_)) {
            let next = apply_changed(decision, Some(&data), start(), &settings());
            assert_eq!(summary(&decide(&next.data, start())), "keep");
        }
    }

    /// Any content leads to a decision.
    #[test]
    fn decides_about_any_bytes(parts in any::<[Vec<u8>; 4]>()) {
        let [ca_certificate, ca_key, certificate, key] = parts;
        let data = SecretData {
            ca: PemPair { certificate: ca_certificate, key: ca_key },
            leaf: PemPair { certificate, key },
            ..SecretData::default()
        };
        assert!(matches!(decide(&data, start()), Decision::IssueAll(_)));
    }
}
