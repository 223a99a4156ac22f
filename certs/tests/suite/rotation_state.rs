//! The steps of a rotation, as one replica decides them.

use std::time::Duration;

use swansong_certs::{
    Certificate, Decision, Event, MAX_PREVIOUS, ObservedBundle, PemPair, RotationRequest, RotationState,
    SecretData, Settings, VerifiedSecret, apply, decide,
};

use crate::support::{DAY, NAME, apply_changed, fresh, start};

const SETTLE_TIME: Duration = Duration::from_secs(30);

fn settings() -> Settings {
    Settings { settle_time: SETTLE_TIME, ..crate::support::settings() }
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn verified(data: &SecretData) -> VerifiedSecret {
    match decide(NAME, Some(data), start(), &settings()) {
        Decision::Keep(verified) => *verified,
        other => panic!("{other:?}"),
    }
}

/// A Secret with an announced CA.
fn announced() -> SecretData {
    let mut data = fresh(&settings(), start()).data;
    data.request = Some(RotationRequest::Ca);
    let decision = decide(NAME, Some(&data), start(), &settings());
    assert!(matches!(decision, Decision::Announce(_)));
    apply_changed(decision, Some(&data), start(), &settings()).data
}

/// The state of a replica that serves this Secret and has observed all its CAs in the bundle for the settle time.
fn settled(data: &SecretData) -> RotationState {
    let cas = verified(data).cas;
    let mut state = RotationState::default();
    state.serving = Some(cas.current.id.clone());
    state.record_bundle(in_all(&cas.desired(start()).collect::<Vec<_>>()), at(0));
    state
}

fn promoted() -> SecretData {
    let data = announced();
    let step = step(&settled(&data), &data, 30).unwrap();
    assert!(matches!(step, Decision::Promote(None)));
    apply_changed(step, Some(&data), start(), &settings()).data
}

fn step(state: &RotationState, data: &SecretData, seconds: u64) -> Option<Decision> {
    state.next_step(&verified(data).cas, start(), at(seconds), &settings())
}

fn in_all(cas: &[&Certificate]) -> ObservedBundle {
    ObservedBundle { in_all: cas.iter().map(|ca| ca.id.clone()).collect(), unlisted: Vec::new() }
}

#[test]
fn the_next_ca_is_promoted_when_this_replica_has_observed_it_for_the_settle_time() {
    let data = announced();
    let cas = verified(&data).cas;
    let (current, next) = (&cas.current, cas.next.as_ref().unwrap());
    let mut state = RotationState::default();
    state.serving = Some(current.id.clone());
    assert!(step(&state, &data, 1000).is_none(), "never observed");
    state.record_bundle(in_all(&[current, next]), at(1000));
    assert!(step(&state, &data, 1029).is_none());
    state.record_bundle(in_all(&[current]), at(1029));
    state.record_bundle(in_all(&[current, next]), at(1030));
    assert!(step(&state, &data, 1059).is_none(), "it was missing in between");
    let decision = step(&state, &data, 1060).unwrap();
    assert!(matches!(decision, Decision::Promote(_)));

    let update = apply_changed(decision, Some(&data), start(), &settings());
    assert!(matches!(update.events[..], [Event::CaPromoted { .. }, Event::LeafIssued { .. }]));
    assert_eq!(update.data.ca, data.next_ca);
    assert!(update.data.next_ca.is_empty());
    assert_eq!(update.data.request, None);
    let cas = &update.verified.cas;
    assert_eq!((&cas.current, &cas.previous[0].certificate), (next, current));
    assert_eq!(cas.previous[0].trusted_until, Some(start() + 90 * DAY + settings().clock_tolerance));
    assert!(state.may_serve(&next.id, at(1060), &settings()));
}

#[test]
fn a_previous_ca_is_retired_when_its_last_leaf_has_expired() {
    let data = promoted();
    let verified = verified(&data);
    let previous = &verified.cas.previous[0];
    let until = previous.trusted_until.unwrap();
    let state = settled(&data);
    let step = |now| state.next_step(&verified.cas, now, at(0), &settings());
    assert!(step(until - at(1)).is_none());
    let Some(Decision::Retire(ids)) = step(until) else { panic!("not retired") };
    assert_eq!(ids, std::slice::from_ref(&previous.certificate.id));
    let update = apply_changed(Decision::Retire(ids), Some(&data), start(), &settings());
    assert!(matches!(&update.events[..], [Event::CaRetired { .. }]));
    assert!(update.data.previous.is_empty());
    assert_eq!(update.data.retired, std::slice::from_ref(&previous.certificate.id));
}

#[test]
fn a_previous_ca_is_not_trusted_beyond_its_own_expiry() {
    let mut short = settings();
    short.ca_validity = DAY;
    let mut data = fresh(&short, start()).data;
    data.request = Some(RotationRequest::Ca);
    let data = apply_changed(decide(NAME, Some(&data), start(), &short), Some(&data), start(), &short).data;
    let next = step(&settled(&data), &data, 30).unwrap();
    let update = apply_changed(next, Some(&data), start(), &short);
    assert_eq!(update.data.previous[0].trusted_until, Some(start() + DAY));
}

#[test]
fn a_second_rotation_adds_a_previous_ca() {
    let mut data = promoted();
    data.request = Some(RotationRequest::Ca);
    let decision = decide(NAME, Some(&data), start(), &settings());
    let data = apply_changed(decision, Some(&data), start(), &settings()).data;
    assert_eq!(verified(&data).cas.desired(start()).count(), 3);
    let decision = step(&settled(&data), &data, 30).unwrap();
    let data = apply_changed(decision, Some(&data), start(), &settings()).data;
    assert_eq!(data.previous.len(), 2);
}

#[test]
fn a_new_leaf_is_served_when_its_ca_is_trusted_or_the_served_one_is_not() {
    let data = announced();
    let cas = verified(&data).cas;
    let (current, next) = (&cas.current, cas.next.as_ref().unwrap());
    let may_serve = |state: &RotationState, seconds| state.may_serve(&next.id, at(seconds), &settings());
    let mut state = RotationState::default();
    assert!(may_serve(&state, 0), "nothing is served yet");
    state.serving = Some(current.id.clone());
    assert!(state.may_serve(&current.id, at(0), &settings()), "another leaf of the same CA");
    assert!(!may_serve(&state, 1000), "the bundle has not been observed yet");
    state.record_bundle(in_all(&[current, next]), at(0));
    assert!(!may_serve(&state, 29));
    assert!(may_serve(&state, 30));
    state.record_bundle(in_all(&[next]), at(31));
    state.record_bundle(in_all(&[current]), at(32));
    assert!(!may_serve(&state, 100));
    state.record_bundle(in_all(&[next]), at(100));
    assert!(may_serve(&state, 100), "the CA of the served leaf is no longer trusted");
}

#[test]
fn unlisted_cas_are_adopted_up_to_the_maximum() {
    let data = fresh(&settings(), start()).data;
    let count = MAX_PREVIOUS + 2;
    let others: Vec<Certificate> =
        (0..count).map(|_| verified(&fresh(&settings(), start()).data).cas.current).collect();
    let mut state = RotationState::default();
    state.record_bundle(ObservedBundle { in_all: Vec::new(), unlisted: others.clone() }, at(0));
    let Some(Decision::Adopt(adopted)) = step(&state, &data, 0) else { panic!("not adopted") };
    assert_eq!(adopted, others);
    let update = apply_changed(Decision::Adopt(adopted), Some(&data), start(), &settings());
    let found = update.events.iter().filter(|event| matches!(event, Event::CaAdopted { .. })).count();
    let retired = update.events.iter().filter(|event| matches!(event, Event::CaRetired { .. })).count();
    assert_eq!((found, retired), (count, 2));
    let cas = &update.verified.cas;
    assert!(cas.previous.iter().map(|ca| &ca.certificate).eq(&others[..MAX_PREVIOUS]));
    let until = start() + 90 * DAY + settings().clock_tolerance;
    assert!(cas.previous.iter().all(|ca| ca.trusted_until == Some(until)), "no leaf of theirs expires later");
    assert_eq!(cas.retired.len(), 2);
    assert!(step(&state, &update.data, 1).is_none());
}

#[test]
fn without_a_valid_leaf_the_next_ca_is_used_at_once() {
    let mut data = announced();
    data.ca.key.clear();
    data.leaf.certificate.clear();
    let decision = decide(NAME, Some(&data), start(), &settings());
    assert!(matches!(decision, Decision::Promote(_)), "{decision:?}");
    let update = apply_changed(decision, Some(&data), start(), &settings());
    assert_eq!(update.data.ca, data.next_ca);
    assert_eq!(update.verified.cas.previous.len(), 1, "other replicas may still serve its leaves");

    // A damaged next CA is dropped.
    let damaged =
        SecretData { next_ca: PemPair { key: b"damaged".to_vec(), ..data.next_ca.clone() }, ..data };
    let decision = decide(NAME, Some(&damaged), start(), &settings());
    assert!(matches!(decision, Decision::IssueAll(_)), "{decision:?}");
    let update = apply_changed(decision, Some(&damaged), start(), &settings());
    assert!(update.data.next_ca.is_empty());
}

#[test]
fn a_damaged_next_ca_is_announced_again() {
    let valid = announced();
    let with = |certificate: &[u8], key: &[u8], request: Option<RotationRequest>| SecretData {
        next_ca: PemPair { certificate: certificate.to_vec(), key: key.to_vec() },
        request,
        ..valid.clone()
    };
    let (certificate, key) = (&valid.next_ca.certificate, &valid.next_ca.key);
    for (row, data) in [
        ("damaged", with(b"damaged", key, valid.request.clone())),
        ("without key", with(certificate, b"", valid.request.clone())),
        ("without request", with(certificate, b"", None)),
    ] {
        let decision = decide(NAME, Some(&data), start(), &settings());
        assert!(matches!(decision, Decision::Announce(_)), "{row}: {decision:?}");
        let update = apply_changed(decision, Some(&data), start(), &settings());
        assert_ne!(update.data.next_ca, data.next_ca);
        let again = decide(NAME, Some(&update.data), start(), &settings());
        assert!(matches!(again, Decision::Keep(_)), "{row}: {again:?}");
    }
}

#[test]
fn a_ca_that_is_due_gets_one_successor() {
    let data = fresh(&settings(), start()).data;
    let late = start() + 2500 * DAY;
    let renewed = apply_changed(decide(NAME, Some(&data), late, &settings()), Some(&data), late, &settings());
    let decision = decide(NAME, Some(&renewed.data), late, &settings());
    assert!(matches!(decision, Decision::Announce(_)), "{decision:?}");
    let next = apply(decision, NAME, Some(&renewed.data), late, &settings()).unwrap();
    assert!(matches!(decide(NAME, Some(&next.data), late, &settings()), Decision::Keep(_)));
    assert_eq!(next.data.leaf, renewed.data.leaf);
}
