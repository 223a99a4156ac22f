use std::collections::BTreeSet;

use super::*;
use crate::code::Code;
use crate::level::Level;
use crate::rules::{FrequencyRule, Rules};
use crate::source_update::{Assertion, FaultEvent};

const DROP: u32 = 0x40F8_4E00;
const NPU: Subject = Subject::Npu(3);
const DEVICES: [u32; 2] = [2, 3];

fn separate(_: &Code, _: Option<Severity>) -> Classification {
    Classification { level: Level::SeparateNPU, reason: "all are separated".to_owned() }
}

fn ignore(_: &Code, _: Option<Severity>) -> Classification {
    Classification { level: Level::NotHandleFault, reason: "all are ignored".to_owned() }
}

const SEPARATE: Context<'_> = Context { classify: &separate, devices: &DEVICES, now: 0, notices: true };
const IGNORE: Context<'_> = Context { classify: &ignore, ..SEPARATE };

fn active_fault(code: u32) -> ActiveFault {
    ActiveFault { code: Code::from(code), severity: Some(Severity::Critical), name: None }
}

fn snapshot(codes: &[u32], at: u64) -> SourceUpdate {
    SourceUpdate::Snapshot { subject: NPU, faults: codes.iter().copied().map(active_fault).collect(), at }
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

fn apply(tracker: &mut FaultTracker, source: &str, seen: &SourceUpdate) -> Vec<Change> {
    tracker.apply(source, seen, SEPARATE)
}

fn began(changes: &[Change]) -> &Fault {
    let [Change::Began(fault)] = changes else { panic!("{changes:?}") };
    fault
}

fn ended(changes: &[Change]) -> &Fault {
    let [Change::Ended(fault)] = changes else { panic!("{changes:?}") };
    fault
}

/// ClusterD accepted all faults.
fn confirm_all(tracker: &mut FaultTracker) {
    for fault in tracker.faults.values_mut() {
        fault.phase = Phase::Confirmed;
    }
}

fn tracker() -> FaultTracker {
    FaultTracker::new("worker-7", None)
}

#[test]
fn fault_ends_under_the_id_and_time_it_began_with() {
    let mut tracker = tracker();
    let fault = began(&apply(&mut tracker, "devices", &snapshot(&[DROP], 1000))).clone();
    assert_eq!((fault.id.as_str(), fault.since), ("worker-7.npu3.40F84E00.1000", 1000));
    let end = apply(&mut tracker, "devices", &snapshot(&[], 2000));
    assert_eq!((&ended(&end).id, ended(&end).since), (&fault.id, 1000));
}

#[test]
fn repeated_reports_change_nothing() {
    let mut tracker = tracker();
    assert_eq!(apply(&mut tracker, "dcmi", &event(1, Assertion::Occur, 1)).len(), 1);
    assert!(apply(&mut tracker, "dcmi", &event(1, Assertion::Occur, 2)).is_empty());
    assert!(tracker.take_changed());
    assert!(apply(&mut tracker, "dcmi", &snapshot(&[1], 3)).is_empty());
    assert!(apply(&mut tracker, "dcmi", &event(2, Assertion::Recover, 4)).is_empty());
    assert!(!tracker.take_changed());
}

#[test]
fn fault_is_active_while_any_source_reports_it() {
    let mut tracker = tracker();
    apply(&mut tracker, "dcmi", &snapshot(&[DROP], 1));
    assert!(apply(&mut tracker, "devices", &snapshot(&[DROP], 2)).is_empty());
    assert!(apply(&mut tracker, "dcmi", &snapshot(&[], 3)).is_empty());
    ended(&apply(&mut tracker, "devices", &snapshot(&[], 4)));
    // A source that never reported it can't end it.
    apply(&mut tracker, "dcmi", &snapshot(&[DROP], 5));
    assert!(apply(&mut tracker, "devices", &snapshot(&[], 6)).is_empty());
}

#[test]
fn unavailable_source_ends_nothing() {
    let mut tracker = tracker();
    apply(&mut tracker, "dcmi", &snapshot(&[DROP], 1));
    let unavailable = SourceUpdate::Unavailable { subject: NPU, reason: "-8005".to_owned() };
    assert!(apply(&mut tracker, "dcmi", &unavailable).is_empty());
    assert_eq!(tracker.active().count(), 1);
}

#[test]
fn ids_are_unique_when_the_clock_goes_back() {
    let mut tracker = tracker();
    let mut ids = BTreeSet::new();
    for at in [5000, 5000, 100, 5000] {
        ids.insert(began(&apply(&mut tracker, "dcmi", &snapshot(&[1], at))).id.clone());
        apply(&mut tracker, "dcmi", &snapshot(&[], at));
    }
    assert_eq!(ids.len(), 4);
}

#[test]
fn fault_that_clusterd_may_know_stays_until_it_ended_there() {
    let mut tracker = tracker();
    apply(&mut tracker, "dcmi", &snapshot(&[1], 1));
    apply(&mut tracker, "dcmi", &snapshot(&[], 2));
    assert_eq!(tracker.faults().count(), 0, "it was never sent");
    apply(&mut tracker, "dcmi", &snapshot(&[1], 3));
    confirm_all(&mut tracker);
    let end = apply(&mut tracker, "dcmi", &snapshot(&[], 4));
    assert_eq!(ended(&end).phase, Phase::Ending);
    assert_eq!((tracker.active().count(), tracker.faults().count()), (0, 1));
}

#[test]
fn restart_continues_with_open_faults() {
    let mut before = tracker();
    apply(&mut before, "dcmi", &snapshot(&[DROP, 1], 1000));
    confirm_all(&mut before);
    let mut after = tracker();
    after.restore(before.faults().cloned().collect(), Vec::new());
    let changes = apply(&mut after, "dcmi", &snapshot(&[DROP], 900));
    assert_eq!(ended(&changes).id, "worker-7.npu3.1.1000");
    assert_eq!(after.active().map(|fault| fault.since).collect::<Vec<_>>(), [1000]);
}

#[test]
fn fault_of_a_disabled_source_stays_and_is_not_watched() {
    let mut before = tracker();
    let fault = began(&apply(&mut before, "dcmi", &snapshot(&[DROP], 1000))).clone();
    let mut after = FaultTracker::new("worker-7", Some(vec!["devices"]));
    after.restore(vec![fault.clone()], Vec::new());
    assert!(!after.is_watched(&fault));
    apply(&mut after, "devices", &snapshot(&[DROP], 2000));
    assert!(after.active().all(|fault| after.is_watched(fault)));
}

#[test]
fn unsent_fault_is_reclassified_in_place() {
    let mut tracker = tracker();
    let fault = began(&apply(&mut tracker, "dcmi", &snapshot(&[DROP], 1000))).clone();
    assert!(tracker.reclassify(SEPARATE).is_empty());
    assert!(tracker.reclassify(IGNORE).is_empty());
    let reclassified: Vec<&Fault> = tracker.faults().collect();
    assert_eq!((&reclassified[0].id, reclassified[0].handling()), (&fault.id, crate::Handling::None));
}

#[test]
fn sent_fault_that_is_handled_otherwise_ends_and_begins_again() {
    let mut tracker = tracker();
    let fault = began(&apply(&mut tracker, "dcmi", &snapshot(&[DROP], 1000))).clone();
    apply(&mut tracker, "devices", &snapshot(&[DROP], 1001));
    confirm_all(&mut tracker);
    let changes = tracker.reclassify(IGNORE);
    let [Change::Ended(old), Change::Began(new)] = &changes[..] else { panic!("{changes:?}") };
    assert!(old.id == fault.id && old.ends_ranks() && new.id != fault.id && !new.ends_ranks());
    assert_eq!(new.sources.len(), 2);
    assert!(apply(&mut tracker, "dcmi", &snapshot(&[], 3000)).is_empty(), "the other source reports it");
    assert_eq!(ended(&apply(&mut tracker, "devices", &snapshot(&[], 3000))).id, new.id);
}

#[test]
fn devices_unknown_to_clusterd_are_counted() {
    let mut tracker = tracker();
    let far = SourceUpdate::Snapshot { subject: Subject::Npu(99), faults: vec![active_fault(1)], at: 1 };
    assert!(apply(&mut tracker, "dcmi", &far).is_empty());
    assert_eq!((tracker.dropped(), tracker.untracked()), (1, None));
}

#[test]
fn node_fault_waits_until_the_devices_are_known() {
    let mut tracker = tracker();
    let node = SourceUpdate::Snapshot { subject: Subject::Node, faults: vec![active_fault(1)], at: 1 };
    let unknown = Context { devices: &[], ..SEPARATE };
    assert!(tracker.apply("devices", &node, unknown).is_empty());
    assert!(tracker.refresh(unknown).is_empty());
    assert_eq!((tracker.dropped(), tracker.untracked()), (0, Some(Untracked::DevicesUnknown)));
    assert_eq!(began(&tracker.refresh(SEPARATE)).devices, DEVICES);
    assert_eq!(tracker.untracked(), None);
    // By the reports, where the Node doesn't name them: an Ascend310P can have several resources.
    let mut tracker = self::tracker();
    tracker.apply("dcmi", &snapshot(&[], 1), unknown);
    assert_eq!(began(&tracker.apply("devices", &node, unknown)).devices, [3]);
}

#[test]
fn faults_beyond_the_limit_follow_when_there_is_room() {
    let mut tracker = tracker();
    let most = u32::try_from(MAX_FAULTS).expect("small");
    for code in 0..most {
        apply(&mut tracker, "dcmi", &event(code, Assertion::Occur, 1));
    }
    assert!(apply(&mut tracker, "dcmi", &event(most, Assertion::Occur, 2)).is_empty());
    assert_eq!(tracker.untracked(), Some(Untracked::Full));
    apply(&mut tracker, "dcmi", &event(0, Assertion::Recover, 3));
    assert_eq!(began(&tracker.refresh(SEPARATE)).code, Code::from(most));
    assert_eq!(tracker.untracked(), None);
}

#[test]
fn notice_is_kept_only_if_notices_are_sent() {
    for (notices, kept) in [(false, 0), (true, 1)] {
        let mut tracker = tracker();
        let context = Context { notices, ..SEPARATE };
        let changes = tracker.apply("dcmi", &event(7, Assertion::Once, 1), context);
        assert!(matches!(&changes[..], [Change::Happened(fault)] if !fault.ends_ranks()));
        assert_eq!((tracker.active().count(), tracker.faults().count()), (0, kept));
    }
}

#[test]
fn adopts_what_clusterd_shows_if_it_is_handled_alike() {
    let id = "worker-7.npu3.40F84E00.1000";
    for (id, handling, adopted) in [
        (id, Some(crate::Handling::EndRanks), true),
        (id, Some(crate::Handling::SubHealth), false),
        (id, None, false),
        ("worker-8.npu3.40F84E00.1000", Some(crate::Handling::EndRanks), false),
        ("worker-7.npu4.40F84E00.1000", Some(crate::Handling::EndRanks), false),
    ] {
        let mut tracker = tracker();
        apply(&mut tracker, "dcmi", &snapshot(&[DROP], 5000));
        assert_eq!(tracker.adopt(id, handling), adopted, "{id} {handling:?}");
        let ids: Vec<&str> = tracker.active().map(|fault| fault.id.as_str()).collect();
        assert_eq!(ids, [if adopted { id } else { "worker-7.npu3.40F84E00.5000" }]);
    }
}

fn twice_separates() -> Rules {
    let mut rules = Rules::default();
    let day = std::time::Duration::from_hours(24);
    let rule = FrequencyRule::new(2, day, Level::ManuallySeparateNPU, Some(day * 2)).expect("a rule");
    assert!(rules.add_frequency_rule(Code::from(1), rule));
    rules
}

#[test]
fn raised_fault_keeps_its_level_and_outlives_its_cause() {
    let mut tracker = tracker();
    tracker.set_rules(twice_separates(), true, 0);
    let context = |now| Context { now, ..IGNORE };
    tracker.apply("dcmi", &snapshot(&[1], 10), context(10));
    tracker.apply("dcmi", &snapshot(&[], 20), context(20));
    let changes = tracker.apply("dcmi", &snapshot(&[1], 30), context(30));
    let [Change::Began(fault), Change::Began(raised)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(raised.classification.level, Level::ManuallySeparateNPU);
    assert!(raised.ends_ranks() && !fault.ends_ranks() && raised.id != fault.id);
    tracker.apply("dcmi", &snapshot(&[], 40), context(40));
    tracker.reclassify(context(40));
    assert_eq!(tracker.active().map(|fault| &fault.id).collect::<Vec<_>>(), [&raised.id]);
    let released = 3 * 24 * 3600 * 1000;
    assert_eq!(ended(&tracker.refresh(context(released))).id, raised.id);
}

#[test]
fn escalation_counters_outlive_a_restart() {
    let mut before = tracker();
    before.set_rules(twice_separates(), true, 0);
    before.apply("dcmi", &snapshot(&[1], 10), IGNORE);
    before.apply("dcmi", &snapshot(&[], 20), IGNORE);
    let mut after = tracker();
    after.restore(Vec::new(), before.tracks());
    // The cluster's rules aren't known yet; the counters wait for them.
    after.set_rules(Rules::default(), false, 30);
    assert_eq!(after.tracks().len(), 1);
    after.set_rules(twice_separates(), true, 40);
    assert_eq!(after.apply("dcmi", &snapshot(&[1], 50), IGNORE).len(), 2, "the second time");
}

#[test]
fn raised_fault_stays_after_a_restart_until_the_rules_are_known() {
    let mut before = tracker();
    before.set_rules(twice_separates(), true, 0);
    for at in [10, 30] {
        before.apply("dcmi", &snapshot(&[1], at), IGNORE);
        before.apply("dcmi", &snapshot(&[], at + 10), IGNORE);
    }
    assert_eq!(before.active().count(), 1);
    let mut after = tracker();
    after.restore(before.faults().cloned().collect(), before.tracks());
    after.set_rules(Rules::default(), false, 0);
    assert!(after.refresh(IGNORE).is_empty());
    after.set_rules(twice_separates(), true, 100);
    assert!(after.refresh(IGNORE).is_empty());
    after.set_rules(Rules::default(), true, 100);
    assert_eq!(after.refresh(IGNORE).len(), 1, "there is no such rule any more");
}
