//! The steps of a change of authority, row by row, and the ledger.

use std::time::Duration;

use proptest::prelude::{ProptestConfig, proptest};
use swansong_certs::{
    Anchor, AuthorityId, BundleView, Decision, Entry, Event, Held, Ledger, MAX_PREVIOUS, Memory, Outcome,
    Request, SecretData, Settings, Step, carry_out, decide, take_step,
};

use crate::support::{DAY, NAME, carry_out_fresh, fresh, start};

const SETTLE: Duration = Duration::from_secs(30);
const EXPIRY: Duration = Duration::from_mins(1);

fn settings() -> Settings {
    Settings { settle: SETTLE, replica_expiry: EXPIRY, ..crate::support::settings() }
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held(data: &SecretData) -> Held {
    match decide(NAME, Some(data), start(), &settings()) {
        Decision::Keep(held) | Decision::Announce { held, .. } => *held,
        other => panic!("{other:?}"),
    }
}

/// A Secret whose authority has a successor.
fn announced() -> SecretData {
    let mut data = fresh(&settings(), start()).data;
    data.request = Some(Request::Authority);
    let decision = decide(NAME, Some(&data), start(), &settings());
    assert!(matches!(decision, Decision::Announce { .. }));
    carry_out_fresh(decision, Some(&data), start(), &settings()).data
}

fn promoted() -> SecretData {
    taken(Step::Promote, &announced()).0
}

fn taken(step: Step, data: &SecretData) -> (SecretData, Vec<Event>) {
    match take_step(step, NAME, held(data), data, start(), &settings()).unwrap() {
        Outcome::Fresh(fresh) => (fresh.data, fresh.events),
        Outcome::Kept(_) => panic!("nothing was done"),
    }
}

fn step(memory: &mut Memory, data: &SecretData, seconds: u64) -> Step {
    memory.next_step(&held(data), data, start(), at(seconds), &settings())
}

fn everywhere(anchors: &[&Anchor]) -> BundleView {
    BundleView { everywhere: anchors.iter().map(|anchor| anchor.id().clone()).collect(), strays: Vec::new() }
}

fn note(data: &SecretData, name: &str, serves: &AuthorityId, beat: u64) -> SecretData {
    let text = format!("{} {name}={serves}/{beat}", data.ledger);
    SecretData { ledger: Ledger::parse(&text), ..data.clone() }
}

#[test]
fn a_successor_is_taken_into_use_when_this_replica_has_seen_it_for_the_settle_time() {
    let data = announced();
    let trust = held(&data).trust;
    let (current, next) = (&trust.current, trust.next.as_ref().unwrap());
    let mut memory = Memory::new("a");
    memory.serves(current.id());
    assert_eq!(step(&mut memory, &data, 1000), Step::Rest, "never seen");
    memory.bundle_seen(everywhere(&[current, next]), at(1000));
    assert_eq!(step(&mut memory, &data, 1029), Step::Rest);
    memory.bundle_seen(everywhere(&[current]), at(1029));
    memory.bundle_seen(everywhere(&[current, next]), at(1030));
    assert_eq!(step(&mut memory, &data, 1059), Step::Rest, "it was gone in between");
    assert_eq!(step(&mut memory, &data, 1060), Step::Promote);

    let (after, events) = taken(Step::Promote, &data);
    assert!(matches!(events[..], [Event::AuthorityPromoted { .. }, Event::LeafIssued { .. }]), "{events:?}");
    assert_eq!(after.authority_certificate, data.next_certificate);
    assert_eq!(after.authority_key, data.next_key);
    assert!(after.next_certificate.is_empty() && after.next_key.is_empty());
    assert_eq!(after.request, None);
    let trust = held(&after).trust;
    assert_eq!((&trust.current, &trust.previous[..]), (next, std::slice::from_ref(current)));
    assert_eq!(step(&mut memory, &after, 1060), {
        let ledger = Ledger::parse(&format!("a={}/0", current.id()));
        Step::Note(ledger)
    });
    assert!(memory.may_serve(next.id(), at(1060), &settings()));
}

#[test]
fn a_second_change_waits_for_the_first() {
    let mut data = promoted();
    data.request = Some(Request::Authority);
    let decision = decide(NAME, Some(&data), start(), &settings());
    let data = carry_out_fresh(decision, Some(&data), start(), &settings()).data;
    let trust = held(&data).trust;
    assert_eq!(trust.wanted(start()).count(), 3);
    let mut memory = Memory::new("a");
    memory.serves(trust.current.id());
    let all: Vec<_> = trust.wanted(start()).collect();
    memory.bundle_seen(everywhere(&all), at(0));
    let ledger = format!("a={}/0", trust.current.id());
    assert_eq!(step(&mut memory, &data, 50), Step::Note(Ledger::parse(&ledger)));
    let data = SecretData { ledger: Ledger::parse(&ledger), ..data };
    for seconds in [70, 90, 109] {
        assert_eq!(step(&mut memory, &data, seconds), Step::Rest);
    }
    assert_eq!(step(&mut memory, &data, 110), Step::Retire(vec![trust.previous[0].id().clone()]));
    let (data, _) = taken(Step::Retire(vec![trust.previous[0].id().clone()]), &data);
    assert!(data.ledger.is_empty());
    assert_eq!(step(&mut memory, &data, 110), Step::Promote);
}

#[test]
fn an_authority_of_the_past_goes_when_nobody_who_lives_needs_it() {
    let data = promoted();
    let trust = held(&data).trust;
    let (new, old) = (trust.current.id(), trust.previous[0].id());
    let retire = Step::Retire(vec![old.clone()]);
    let started = |serving: &AuthorityId| {
        let mut memory = Memory::new("a");
        memory.serves(serving);
        memory
    };
    let own = |data: &SecretData, serves: &AuthorityId| note(data, "a", serves, 0);

    let mut memory = started(new);
    let alone = own(&data, new);
    for seconds in [0, 20, 40] {
        assert_eq!(step(&mut memory, &alone, seconds), Step::Rest);
    }
    assert_eq!(step(&mut memory, &alone, 59), Step::Rest, "someone may be there who hasn't looked yet");
    assert_eq!(step(&mut memory, &alone, 60), retire);
    assert_eq!(step(&mut memory, &alone, 90), Step::Rest, "it has not watched all the time");

    let mut memory = started(old);
    let alone = own(&data, old);
    for seconds in 0..100 {
        assert!(
            matches!(step(&mut memory, &alone, seconds), Step::Note(_) | Step::Rest),
            "it serves the old leaf itself"
        );
    }

    let mut memory = started(new);
    let waiting = |beat: u64| note(&own(&data, new), "b", old, beat);
    for beat in 0..20 {
        assert_eq!(step(&mut memory, &waiting(beat), beat * 25), Step::Rest, "b lives");
    }
    for seconds in [500, 520, 534] {
        assert_eq!(step(&mut memory, &waiting(19), seconds), Step::Rest);
    }
    assert_eq!(step(&mut memory, &waiting(19), 535), retire, "b is gone");

    let mut memory = started(new);
    let done = note(&own(&data, new), "b", new, 7);
    for seconds in [0, 20, 40] {
        step(&mut memory, &done, seconds);
    }
    assert_eq!(
        step(&mut memory, &done, 60),
        retire,
        "b serves the new leaf, and gives no more signs of life"
    );

    let mut memory = started(new);
    let later = trust.previous[0].not_after();
    let step = memory.next_step(&held(&data), &data, later, at(0), &settings());
    assert_eq!(step, retire, "its life is over");
}

#[test]
fn who_serves_the_past_gives_signs_of_life_and_who_does_not_is_noted_once() {
    let data = promoted();
    let trust = held(&data).trust;
    let (new, old) = (trust.current.id(), trust.previous[0].id());
    let mut memory = Memory::new("pod a/b");
    assert_eq!(memory.replica(), "pod-a-b");
    assert_eq!(step(&mut memory, &data, 0), Step::Rest, "it serves nothing yet");
    memory.serves(old);
    let mut data = data;
    let mut beats = Vec::new();
    for seconds in 0..60 {
        if let Step::Note(ledger) = step(&mut memory, &data, seconds) {
            assert_eq!(&ledger.get("pod-a-b").unwrap().serves, old);
            beats.push(seconds);
            data = taken(Step::Note(ledger), &data).0;
        }
    }
    assert_eq!(beats, [0, 15, 30, 45]);
    memory.serves(new);
    let Step::Note(ledger) = step(&mut memory, &data, 50) else { panic!("not noted") };
    assert_eq!(ledger.get("pod-a-b"), Some(&Entry { serves: new.clone(), beat: 4 }));
    data = taken(Step::Note(ledger), &data).0;
    assert!((50..60).all(|seconds| step(&mut memory, &data, seconds) == Step::Rest));
}

#[test]
fn what_is_served_changes_when_it_is_trusted_or_when_nothing_is_lost_by_it() {
    let data = announced();
    let trust = held(&data).trust;
    let (current, next) = (&trust.current, trust.next.as_ref().unwrap());
    let may = |memory: &Memory, seconds| memory.may_serve(next.id(), at(seconds), &settings());
    let mut memory = Memory::new("a");
    assert!(may(&memory, 0), "nothing is served yet");
    memory.serves(current.id());
    assert!(memory.may_serve(current.id(), at(0), &settings()), "another leaf of the same authority");
    assert!(!may(&memory, 1000), "the bundle has not been seen yet");
    memory.bundle_seen(everywhere(&[current, next]), at(0));
    assert!(!may(&memory, 29));
    assert!(may(&memory, 30));
    memory.bundle_seen(everywhere(&[next]), at(31));
    memory.bundle_seen(everywhere(&[current]), at(32));
    assert!(!may(&memory, 100));
    memory.bundle_seen(everywhere(&[next]), at(100));
    assert!(may(&memory, 100), "the one that is served is trusted no longer");
}

#[test]
fn strays_are_kept_as_ones_of_the_past_and_too_many_are_given_up() {
    let data = fresh(&settings(), start()).data;
    let others: Vec<Anchor> = (0..6).map(|_| held(&fresh(&settings(), start()).data).trust.current).collect();
    let mut memory = Memory::new("a");
    memory.bundle_seen(BundleView { everywhere: Vec::new(), strays: others.clone() }, at(0));
    assert_eq!(step(&mut memory, &data, 0), Step::Adopt(others.clone()));
    let (data, events) = taken(Step::Adopt(others.clone()), &data);
    let found = events.iter().filter(|event| matches!(event, Event::AuthorityFound { .. })).count();
    let retired = events.iter().filter(|event| matches!(event, Event::AuthorityRetired { .. })).count();
    assert_eq!((found, retired), (6, 2));
    let trust = held(&data).trust;
    assert_eq!(trust.previous, others[..MAX_PREVIOUS]);
    assert_eq!(trust.retired.len(), 2);
    assert_eq!(step(&mut memory, &data, 1), Step::Rest, "nothing is a stray any more");
}

#[test]
fn without_a_leaf_to_serve_the_successor_is_taken_into_use_at_once() {
    let data = SecretData { authority_key: Vec::new(), certificate: Vec::new(), ..announced() };
    let decision = decide(NAME, Some(&data), start(), &settings());
    assert!(matches!(decision, Decision::Promote { .. }), "{decision:?}");
    let after = carry_out_fresh(decision, Some(&data), start(), &settings());
    assert_eq!(after.data.authority_certificate, data.next_certificate);
    assert_eq!(after.held.trust.previous.len(), 1, "others may still serve its leaves");

    // A torn successor is of no help.
    let torn = SecretData { next_key: b"torn".to_vec(), ..data };
    let decision = decide(NAME, Some(&torn), start(), &settings());
    assert!(matches!(decision, Decision::IssueAll { .. }), "{decision:?}");
    let after = carry_out_fresh(decision, Some(&torn), start(), &settings());
    assert!(after.data.next_certificate.is_empty() && after.data.next_key.is_empty());
}

#[test]
fn a_torn_successor_is_prepared_anew_and_an_old_one_too() {
    let sound = announced();
    for (row, data, now) in [
        ("torn", SecretData { next_certificate: b"torn".to_vec(), ..sound.clone() }, start()),
        ("half", SecretData { next_key: Vec::new(), ..sound.clone() }, start()),
        ("without request", SecretData { next_key: Vec::new(), request: None, ..sound.clone() }, start()),
    ] {
        let decision = decide(NAME, Some(&data), now, &settings());
        assert!(matches!(decision, Decision::Announce { .. }), "{row}: {decision:?}");
        let after = carry_out_fresh(decision, Some(&data), now, &settings());
        assert!(after.held.trust.next.is_none() || after.data.next_certificate != data.next_certificate);
        let again = decide(NAME, Some(&after.data), now, &settings());
        assert!(matches!(again, Decision::Keep(_)), "{row}: {again:?}");
    }
}

#[test]
fn a_due_authority_gets_one_successor() {
    let data = fresh(&settings(), start()).data;
    let late = start() + 2500 * DAY;
    let renewed =
        carry_out_fresh(decide(NAME, Some(&data), late, &settings()), Some(&data), late, &settings());
    let decision = decide(NAME, Some(&renewed.data), late, &settings());
    assert!(matches!(decision, Decision::Announce { .. }), "{decision:?}");
    let Outcome::Fresh(next) = carry_out(decision, NAME, Some(&renewed.data), late, &settings()).unwrap()
    else {
        panic!("nothing was made")
    };
    assert!(matches!(decide(NAME, Some(&next.data), late, &settings()), Decision::Keep(_)));
    assert_eq!(next.data.certificate, renewed.data.certificate);
}

#[test]
fn a_damaged_ledger_is_read_as_far_as_it_goes() {
    let text = "a=0123456789abcdef/7 b=0123456789abcdef c= =/ d=0123456789ABCDEF/1 e=0123456789abcdef/x f/g=0123456789abcdef/1";
    let ledger = Ledger::parse(text);
    assert_eq!(ledger.to_string(), "a=0123456789abcdef/7");
    let many: Vec<String> = (0..1000).map(|number| format!("pod-{number}=0123456789abcdef/0")).collect();
    assert!(Ledger::parse(&many.join(" ")).iter().count() <= 256);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_ledger_is_read_and_written_alike(text in "([a-z0-9./= ]|[0-9a-f]{16})*") {
        let ledger = Ledger::parse(&text);
        assert_eq!(Ledger::parse(&ledger.to_string()), ledger);
    }
}
