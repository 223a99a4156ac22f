use swansong_fault::{Assertion, Code, Event, Level, Seen, Severity, Standing, Subject};

use super::episodes::{Change, Classify, Episodes};

const DROP: u32 = 0x40F8_4E00;
const NPU: Subject = Subject::Npu(3);
const DEVICES: [u32; 2] = [2, 3];

struct Grave;

impl Classify for Grave {
    fn level(&self, _: &Code, _: Option<Severity>) -> (Level, String) {
        (Level::SeparateNPU, "all is grave".to_owned())
    }
}

fn standing(code: u32) -> Standing {
    Standing { code: Code::from(code), severity: Some(Severity::Critical), name: None }
}

fn all(codes: &[u32], at: u64) -> Seen {
    Seen::All { subject: NPU, standing: codes.iter().copied().map(standing).collect(), at }
}

fn event(code: u32, assertion: Assertion, at: u64) -> Seen {
    Seen::Event(Event { subject: NPU, code: Code::from(code), severity: None, assertion, name: None, at })
}

fn take(episodes: &mut Episodes, source: &str, seen: &Seen) -> Vec<Change> {
    episodes.take_in(source, seen, &Grave, &DEVICES)
}

fn told(changes: &[Change]) -> Vec<(Assertion, u64)> {
    changes.iter().map(|change| (change.assertion, change.episode.code.number())).collect()
}

#[test]
fn b77_a_device_that_comes_back_recovers_by_the_id_it_went_with() {
    let mut episodes = Episodes::new("worker-7");
    let gone = take(&mut episodes, "devices", &all(&[DROP], 1000));
    let back = take(&mut episodes, "devices", &all(&[], 2000));
    assert_eq!(told(&gone), [(Assertion::Occur, DROP.into())]);
    assert_eq!(told(&back), [(Assertion::Recover, DROP.into())]);
    assert_eq!(gone[0].id, back[0].id);
    // A time that is told with a recovery is that of the occurrence.
    assert_eq!(back[0].episode.began, 1000);
}

#[test]
fn the_same_again_is_nothing_new() {
    let mut episodes = Episodes::new("worker-7");
    assert_eq!(take(&mut episodes, "dcmi", &event(1, Assertion::Occur, 1)).len(), 1);
    assert!(take(&mut episodes, "dcmi", &event(1, Assertion::Occur, 2)).is_empty());
    assert!(take(&mut episodes, "dcmi", &all(&[1], 3)).is_empty());
    assert!(take(&mut episodes, "dcmi", &event(2, Assertion::Recover, 4)).is_empty());
}

#[test]
fn a_fault_stands_as_long_as_anybody_says_so() {
    let mut episodes = Episodes::new("worker-7");
    take(&mut episodes, "dcmi", &all(&[DROP], 1));
    assert!(take(&mut episodes, "devices", &all(&[DROP], 2)).is_empty());
    assert!(take(&mut episodes, "dcmi", &all(&[], 3)).is_empty());
    assert_eq!(told(&take(&mut episodes, "devices", &all(&[], 4))), [(Assertion::Recover, DROP.into())]);
    // Who never said that it stands can't end it.
    take(&mut episodes, "dcmi", &all(&[DROP], 5));
    assert!(take(&mut episodes, "devices", &all(&[], 6)).is_empty());
}

#[test]
fn b73_a_source_that_is_blind_takes_nothing_back() {
    let mut episodes = Episodes::new("worker-7");
    take(&mut episodes, "dcmi", &all(&[DROP], 1));
    let blind = Seen::Blind { subject: NPU, why: "-8005".to_owned() };
    assert!(take(&mut episodes, "dcmi", &blind).is_empty());
    assert_eq!(episodes.standing().count(), 1);
}

#[test]
fn each_episode_has_an_id_of_its_own_whatever_the_clock_does() {
    let mut episodes = Episodes::new("worker-7");
    let mut ids = Vec::new();
    for at in [5000, 5000, 100, 5000] {
        ids.push(take(&mut episodes, "dcmi", &all(&[1], at)).remove(0).id);
        take(&mut episodes, "dcmi", &all(&[], at));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn a_restart_goes_on_with_what_stood() {
    let mut before = Episodes::new("worker-7");
    let begun = take(&mut before, "dcmi", &all(&[DROP, 1], 1000));
    let mut after = Episodes::new("worker-7");
    for change in &begun {
        after.restore(&change.id, change.episode.clone());
    }
    let changes = take(&mut after, "dcmi", &all(&[DROP], 900));
    assert_eq!(told(&changes), [(Assertion::Recover, 1)]);
    assert_eq!(changes[0].id, begun[1].id);
}

#[test]
fn what_found_no_place_is_told_again() {
    let mut episodes = Episodes::new("worker-7");
    let first = take(&mut episodes, "dcmi", &all(&[DROP], 1000)).remove(0);
    episodes.forget(&first.id);
    let again = take(&mut episodes, "dcmi", &all(&[DROP], 2000)).remove(0);
    assert_eq!(again.assertion, Assertion::Occur);
    assert_ne!(again.id, first.id);
}

#[test]
fn devices_that_clusterd_doesnt_know_are_counted() {
    let mut episodes = Episodes::new("worker-7");
    let far = Seen::All { subject: Subject::Npu(99), standing: vec![standing(1)], at: 1 };
    assert!(take(&mut episodes, "dcmi", &far).is_empty());
    let node = Seen::All { subject: Subject::Node, standing: vec![standing(1)], at: 1 };
    assert!(episodes.take_in("devices", &node, &Grave, &[]).is_empty());
    assert_eq!(episodes.dropped(), 2);
    assert_eq!(episodes.take_in("devices", &node, &Grave, &DEVICES)[0].episode.devices, DEVICES);
}

#[test]
fn a_notice_stands_for_nothing() {
    let mut episodes = Episodes::new("worker-7");
    let notice = take(&mut episodes, "dcmi", &event(7, Assertion::Once, 1)).remove(0);
    assert!(notice.episode.once && !notice.episode.kills());
    assert_eq!(episodes.standing().count(), 0);
}
