//! What is decided about a Secret, row by row.

use std::time::{Duration, SystemTime};

use proptest::prelude::{ProptestConfig, any, proptest};
use rcgen::{BasicConstraints, CertificateParams, GeneralSubtree, IsCa, KeyPair, NameConstraints};
use swansong_certs::{
    Authority, AuthorityError, AuthorityReason, Decision, LEAF_VALIDITY, LeafReason, PairError, SecretData,
    service_names,
};

use crate::support::{DAY, NAME, authority_of, carry_out_fresh, fresh, leaf, settings, start};

fn decide(data: &SecretData, now: SystemTime) -> Decision {
    swansong_certs::decide(NAME, Some(data), now, &settings())
}

/// A decision in one line, so that a table can name it.
fn summary(decision: &Decision) -> String {
    match decision {
        Decision::Keep(_) => "keep".to_owned(),
        Decision::IssueLeaf { reason, .. } => format!(
            "leaf: {}",
            match reason {
                LeafReason::Absent => "absent",
                LeafReason::NewAuthority => "new authority",
                LeafReason::Unusable(error) => pair_error(error),
                LeafReason::OtherNames { .. } => "other names",
                LeafReason::Refused { .. } => "refused",
                LeafReason::Due { .. } => "due",
                LeafReason::Requested => "requested",
            }
        ),
        Decision::IssueAll { reason } => format!("all: {}", authority_reason(reason)),
        Decision::Announce { reason, .. } => format!("announce: {}", authority_reason(reason)),
        Decision::Promote { reason, .. } => format!("promote: {}", authority_reason(reason)),
    }
}

fn authority_reason(reason: &AuthorityReason) -> &'static str {
    match reason {
        AuthorityReason::Absent => "absent",
        AuthorityReason::Unusable(error) | AuthorityReason::NextUnusable(error) => match error {
            AuthorityError::Unreadable(error) => pair_error(error),
            AuthorityError::NotAnAuthority { .. } => "not an authority",
            _ => "unusable",
        },
        AuthorityReason::Due { .. } => "due",
        AuthorityReason::Requested => "requested",
        AuthorityReason::Settled => "settled",
    }
}

fn pair_error(error: &PairError) -> &'static str {
    match error {
        PairError::NoCertificate { .. } => "no certificate",
        PairError::BadCertificate { .. } => "bad certificate",
        PairError::NoKey { .. } => "no key",
        PairError::EncryptedKey { .. } => "encrypted key",
        PairError::BadKey { .. } => "bad key",
        PairError::KeyMismatch { .. } => "mismatch",
        PairError::NotYetValid { .. } => "not yet valid",
        PairError::Expired { .. } => "expired",
    }
}

#[test]
fn a_sound_secret_is_kept_and_a_damaged_one_replaced_as_little_as_possible() {
    let sound = fresh(&settings(), start()).data;
    let other = fresh(&settings(), start()).data;
    let stranger = leaf();
    let change = |change: &dyn Fn(&mut SecretData)| {
        let mut data = sound.clone();
        change(&mut data);
        data
    };
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let rows: Vec<(&str, SecretData, &str)> = vec![
        ("sound", sound.clone(), "keep"),
        ("empty", SecretData::default(), "all: absent"),
        ("no ca.crt", change(&|data| data.authority_certificate.clear()), "all: no certificate"),
        ("no ca.key", change(&|data| data.authority_key.clear()), "announce: no key"),
        (
            "torn ca.crt",
            change(&|data| data.authority_certificate = half(&data.authority_certificate)),
            "all: bad certificate",
        ),
        ("torn ca.key", change(&|data| data.authority_key = half(&data.authority_key)), "announce: bad key"),
        ("garbage ca.key", change(&|data| data.authority_key = b"garbage".to_vec()), "announce: no key"),
        (
            "another's ca.key",
            change(&|data| data.authority_key.clone_from(&other.authority_key)),
            "announce: mismatch",
        ),
        (
            "leaf as authority",
            change(&|data| {
                data.authority_certificate.clone_from(&data.certificate);
                data.authority_key.clone_from(&data.key);
            }),
            "all: not an authority",
        ),
        (
            "no leaf",
            change(&|data| {
                data.certificate.clear();
                data.key.clear();
            }),
            "leaf: absent",
        ),
        ("no tls.crt", change(&|data| data.certificate.clear()), "leaf: no certificate"),
        ("no tls.key", change(&|data| data.key.clear()), "leaf: no key"),
        ("torn tls.crt", change(&|data| data.certificate = half(&data.certificate)), "leaf: bad certificate"),
        ("torn tls.key", change(&|data| data.key = half(&data.key)), "leaf: bad key"),
        ("another's tls.key", change(&|data| data.key.clone_from(&other.key)), "leaf: mismatch"),
        (
            "leaf of another authority",
            change(&|data| {
                data.certificate.clone_from(&other.certificate);
                data.key.clone_from(&other.key);
            }),
            "leaf: refused",
        ),
        (
            "leaf that lacks a name",
            change(&|data| {
                data.certificate = stranger.certificate.clone().into_bytes();
                data.key = stranger.key.clone().into_bytes();
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
fn time_decides() {
    let sound = fresh(&settings(), start()).data;
    let hour = DAY / 24;
    // The leaf's life is ninety days and the hour that it was backdated.
    let due = start() - hour + (LEAF_VALIDITY + hour) / 3 * 2;
    let rows = [
        ("before the backdating", start() - 2 * hour, "all: not yet valid"),
        ("with a clock an hour behind", start() - hour, "keep"),
        ("just before two thirds", due - DAY / 86_400, "keep"),
        ("at two thirds", due, "leaf: due"),
        ("after its end", start() + 91 * DAY, "leaf: expired"),
        ("after the authority's end", start() + 3651 * DAY, "all: expired"),
    ];
    for (row, now, expected) in rows {
        assert_eq!(summary(&decide(&sound, now)), expected, "{row}");
    }
}

#[test]
fn the_last_leaf_of_an_authority_ends_with_it_and_is_not_renewed_over_and_over() {
    let sound = fresh(&settings(), start()).data;
    let late = start() + 3640 * DAY;
    let last = carry_out_fresh(decide(&sound, late), Some(&sound), late, &settings());
    assert_eq!(last.held.pair.not_after(), last.held.trust.current.not_after());
    assert_eq!(summary(&decide(&last.data, late + 9 * DAY)), "announce: due");
}

#[test]
fn an_authority_that_signs_in_vain_is_replaced() {
    let sound = fresh(&settings(), start()).data;
    // An authority that may sign only for other names.
    let mut narrow = CertificateParams::default();
    narrow.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    narrow.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".to_owned())],
        excluded_subtrees: Vec::new(),
    });
    let key = KeyPair::generate().unwrap();
    let mut data = sound.clone();
    data.authority_certificate = narrow.self_signed(&key).unwrap().pem().into_bytes();
    data.authority_key = key.serialize_pem().into_bytes();

    let decision = decide(&data, start());
    assert_eq!(summary(&decision), "leaf: refused");
    let next = carry_out_fresh(decision, Some(&data), start(), &settings());
    assert_ne!(next.data.authority_certificate, data.authority_certificate);
    let told = next.events[0].to_string();
    assert!(told.contains("no certificate that it signs would be accepted"), "{told}");
}

#[test]
fn a_new_name_costs_a_leaf_and_not_the_authority() {
    let sound = fresh(&settings(), start()).data;
    let mut renamed = settings();
    renamed.dns_names = service_names("swansong", "elsewhere");
    let decision = swansong_certs::decide(NAME, Some(&sound), start(), &renamed);
    assert_eq!(summary(&decision), "leaf: other names");
    let next = carry_out_fresh(decision, Some(&sound), start(), &renamed);
    assert_eq!(next.data.authority_certificate, sound.authority_certificate);
    assert_eq!(next.data.authority_key, sound.authority_key);
    assert!(next.held.pair.covers("swansong.elsewhere.svc"));
    assert_eq!(next.events.len(), 1);
}

#[test]
fn names_too_long_for_dns_are_an_error_and_no_panic() {
    let authority = authority_of(&Authority::create(start(), 10 * DAY).unwrap(), start());
    let long = service_names(&"s".repeat(63), &"n".repeat(63));
    authority.issue(&long, start(), DAY).unwrap();
    let error = authority.issue(&["späť.svc".to_owned()], start(), DAY).unwrap_err();
    assert!(error.to_string().contains("check the service name"), "{error}");
}

#[test]
fn a_life_beyond_the_calendar_ends_with_it() {
    let mut endless = settings();
    endless.authority_validity = Duration::MAX;
    endless.leaf_validity = Duration::MAX;
    let made = fresh(&endless, start());
    assert_eq!(made.held.pair.not_after(), made.held.trust.current.not_after());
}

#[test]
fn nothing_shows_a_key() {
    let made = fresh(&settings(), start());
    let key = String::from_utf8(made.data.key.clone()).unwrap();
    let secret_line = key.lines().nth(1).unwrap();
    let shown = format!("{made:?} {:?} {:?}", decide(&made.data, start()), leaf());
    assert!(!shown.contains(secret_line) && !shown.contains("PRIVATE"), "{shown}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is in the Secret, what is made of it is kept by the next look: replicas don't take turns.
    #[test]
    fn what_is_made_is_kept(part in 0_usize..4, cut in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut data = fresh(&settings(), start()).data;
        let bytes = match part {
            0 => &mut data.authority_certificate,
            1 => &mut data.authority_key,
            2 => &mut data.certificate,
            _ => &mut data.key,
        };
        let at = cut.index(bytes.len());
        bytes[at] = byte;
        let decision = decide(&data, start());
        if !matches!(decision, Decision::Keep(_)) {
            let next = carry_out_fresh(decision, Some(&data), start(), &settings());
            assert_eq!(summary(&decide(&next.data, start())), "keep");
        }
    }

    /// Any bytes at all are answered with a decision.
    #[test]
    fn any_bytes_are_judged(parts in any::<[Vec<u8>; 4]>()) {
        let [authority_certificate, authority_key, certificate, key] = parts;
        let data = SecretData { authority_certificate, authority_key, certificate, key, ..SecretData::default() };
        assert!(matches!(decide(&data, start()), Decision::IssueAll { .. }));
    }
}
