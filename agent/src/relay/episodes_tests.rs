use swansong_fault_model::{
    ActiveFault, Assertion, Code, FaultEvent, Level, Severity, SourceUpdate, Subject,
};

use super::episodes::{Change, Classify, Context, Episodes};

const DROP: u32 = 0x40F8_4E00;
const NPU: Subject = Subject::Npu(3);
const DEVICES: [u32; 2] = [2, 3];

const GRAVE: Context<'_> = Context { classify: &Grave, devices: &DEVICES };

struct Grave;

impl Classify for Grave {
    fn level(&self, _: &Code, _: Option<Severity>) -> (Level, String) {
        (Level::SeparateNPU, "all is grave".to_owned())
    }
}

struct Mild;

impl Classify for Mild {
    fn level(&self, _: &Code, _: Option<Severity>) -> (Level, String) {
        (Level::NotHandleFault, "all is mild".to_owned())
    }
}

fn standing(code: u32) -> ActiveFault {
    ActiveFault { code: Code::from(code), severity: Some(Severity::Critical), name: None }
}

fn all(codes: &[u32], at: u64) -> SourceUpdate {
    SourceUpdate::Snapshot { subject: NPU, faults: codes.iter().copied().map(standing).collect(), at }
}

fn event(code: u32, assertion: Assertion, at: u64) -> SourceUpdate {
    SourceUpdate::Event(FaultEvent {
        subject: NPU,
        code: Code::from(code),
        severity: None,
        assertion,
        name: None,
        at,
    })
}

fn take(episodes: &mut Episodes, source: &str, seen: &SourceUpdate) -> Vec<Change> {
    episodes.take_in(source, seen, GRAVE)
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
    let blind = SourceUpdate::Unavailable { subject: NPU, reason: "-8005".to_owned() };
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
fn what_found_no_place_is_told_when_there_is_one() {
    let mut episodes = Episodes::new("worker-7");
    let first = take(&mut episodes, "dcmi", &all(&[DROP], 1000)).remove(0);
    take(&mut episodes, "devices", &all(&[DROP], 1001));
    episodes.forget(&first);
    assert!(episodes.is_unplaced());
    // No source has to say it again.
    let again = episodes.place(GRAVE).remove(0);
    assert_eq!(again.assertion, Assertion::Occur);
    assert_ne!(again.id, first.id);
    assert!(!episodes.is_unplaced());
    // Whoever held it still does.
    assert!(take(&mut episodes, "dcmi", &all(&[], 3000)).is_empty());
    assert_eq!(told(&take(&mut episodes, "devices", &all(&[], 3000))), [(Assertion::Recover, DROP.into())]);
}

#[test]
fn what_is_over_before_it_found_a_place_is_never_told() {
    for over in [all(&[], 2000), event(DROP, Assertion::Recover, 2000)] {
        let mut episodes = Episodes::new("worker-7");
        let first = take(&mut episodes, "dcmi", &all(&[DROP], 1000)).remove(0);
        episodes.forget(&first);
        assert!(take(&mut episodes, "dcmi", &over).is_empty());
        assert!(episodes.place(GRAVE).is_empty());
    }
}

#[test]
fn what_changes_its_class_is_told_anew_and_keeps_who_holds_it() {
    let mut episodes = Episodes::new("worker-7");
    let first = take(&mut episodes, "dcmi", &all(&[DROP], 1000)).remove(0);
    take(&mut episodes, "devices", &all(&[DROP], 1001));
    assert!(episodes.reclassify(&Grave).is_empty());
    let changes = episodes.reclassify(&Mild);
    assert_eq!(told(&changes), [(Assertion::Recover, DROP.into()), (Assertion::Occur, DROP.into())]);
    // The end is that of what was told.
    assert_eq!((&changes[0].id, changes[0].episode.kills()), (&first.id, true));
    assert_ne!(changes[1].id, first.id);
    assert!(!changes[1].episode.kills());
    assert!(take(&mut episodes, "dcmi", &all(&[], 3000)).is_empty(), "the other still says so");
    let over = take(&mut episodes, "devices", &all(&[], 3000));
    assert_eq!((over.len(), &over[0].id), (1, &changes[1].id));
}

#[test]
fn what_a_rule_raised_stays_at_its_level() {
    let mut episodes = Episodes::new("worker-7");
    let first = take(&mut episodes, "dcmi", &all(&[DROP], 1000)).remove(0);
    let raised = episodes.raise(&first.episode, Level::ManuallySeparateNPU, "rule".to_owned(), 2000);
    let raised = raised.expect("raised");
    episodes.reclassify(&Mild);
    let levels: Vec<_> = episodes.standing().map(|(id, episode)| (id == raised.id, episode.level)).collect();
    assert_eq!(levels, [(false, Level::NotHandleFault), (true, Level::ManuallySeparateNPU)]);
}

#[test]
fn devices_that_clusterd_doesnt_know_are_counted() {
    let mut episodes = Episodes::new("worker-7");
    let far = SourceUpdate::Snapshot { subject: Subject::Npu(99), faults: vec![standing(1)], at: 1 };
    assert!(take(&mut episodes, "dcmi", &far).is_empty());
    assert_eq!((episodes.dropped(), episodes.is_unplaced()), (1, false));
}

#[test]
fn a_fault_of_the_node_waits_until_its_devices_are_known() {
    let mut episodes = Episodes::new("worker-7");
    let node = SourceUpdate::Snapshot { subject: Subject::Node, faults: vec![standing(1)], at: 1 };
    let unknown = Context { devices: &[], ..GRAVE };
    assert!(episodes.take_in("devices", &node, unknown).is_empty());
    assert!(episodes.place(unknown).is_empty());
    assert_eq!((episodes.dropped(), episodes.is_unplaced()), (0, true));
    assert_eq!(episodes.place(GRAVE)[0].episode.devices, DEVICES);
    // By what the sources look at, where the Node says nothing: an Ascend310P can be offered several times.
    let mut episodes = Episodes::new("worker-7");
    assert!(episodes.take_in("dcmi", &all(&[], 1), unknown).is_empty());
    assert_eq!(episodes.take_in("devices", &node, unknown)[0].episode.devices, [3]);
}

#[test]
fn a_notice_stands_for_nothing() {
    let mut episodes = Episodes::new("worker-7");
    let notice = take(&mut episodes, "dcmi", &event(7, Assertion::Once, 1)).remove(0);
    assert!(notice.episode.once && !notice.episode.kills());
    assert_eq!(episodes.standing().count(), 0);
}

#[test]
fn what_a_returning_disk_remembers_under_another_id_is_over() {
    // In memory, while the disk was away.
    let mut episodes = Episodes::new("worker-7");
    let here = take(&mut episodes, "dcmi", &all(&[DROP], 2000)).remove(0);
    let remembered = Episodes::new("worker-7").take_in("dcmi", &all(&[DROP], 1000), GRAVE).remove(0);
    let over = episodes.restore(&remembered.id, remembered.episode.clone()).expect("one of them is over");
    assert_eq!((&over.id, over.assertion), (&remembered.id, Assertion::Recover));
    // That the file ended it too doesn't end the one that stands.
    episodes.restore_end(&remembered.id, &remembered.episode);
    assert!(episodes.is_vouched(&here.episode.key(), &here.id));
    // The same once more is nothing new, and keeps who vouches for it.
    assert_eq!(episodes.restore(&here.id, here.episode.clone()), None);
    assert!(episodes.is_vouched(&here.episode.key(), &here.id));
}

#[test]
fn what_only_a_source_said_that_was_switched_off_is_not_over_and_is_found() {
    let mut before = Episodes::new("worker-7");
    let told = take(&mut before, "dcmi", &all(&[DROP], 1000)).remove(0);
    let key = told.episode.key();
    let mut after = Episodes::of("worker-7", &["devices", "dcmi"]);
    after.restore(&told.id, told.episode.clone());
    assert_eq!((after.unheld(), after.is_held(&key, &told.id)), (None, true));
    let mut after = Episodes::of("worker-7", &["devices"]);
    after.restore(&told.id, told.episode.clone());
    assert_eq!(after.unheld(), Some((told.id.as_str(), &told.episode)));
    assert!(!after.is_held(&key, &told.id));
    // Another source says so too.
    take(&mut after, "devices", &all(&[DROP], 2000));
    assert_eq!((after.unheld(), after.is_held(&key, &told.id)), (None, true));
}

#[test]
fn what_a_returning_disk_remembers_and_its_source_called_over_is_over() {
    let told = take(&mut Episodes::new("worker-7"), "dcmi", &all(&[DROP], 1000)).remove(0);
    let restored = |seen: &[SourceUpdate]| {
        let mut episodes = Episodes::new("worker-7");
        for seen in seen {
            take(&mut episodes, "dcmi", seen);
        }
        let over = episodes.restore(&told.id, told.episode.clone());
        (over.map(|over| over.assertion), episodes.standing().count())
    };
    assert_eq!(restored(&[]), (None, 1), "nobody has said anything yet");
    assert_eq!(restored(&[all(&[], 2000)]), (Some(Assertion::Recover), 0));
    assert_eq!(
        restored(&[all(&[DROP], 2000), event(DROP, Assertion::Recover, 3000)]),
        (Some(Assertion::Recover), 0)
    );
    // It stands, under the id that it got while the disk was away.
    assert_eq!(restored(&[all(&[DROP], 2000)]), (Some(Assertion::Recover), 1));
    assert_eq!(
        restored(&[all(&[], 2000), event(DROP, Assertion::Occur, 3000)]),
        (Some(Assertion::Recover), 1)
    );
}
