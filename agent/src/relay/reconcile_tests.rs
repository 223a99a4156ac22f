//! What ClusterD has against what it should have.

use std::time::Duration;

use swansong_clusterd::SendError;
use swansong_fault_model::{Assertion, Level, Subject};

use super::plan::{CONFIRM, Relay, VOUCH};
use super::plan_tests::{Site, episode, has, head, ids};
use super::reconcile::View;
use super::settings::Settings;
use super::terms::{Head, Hold, Note, Origin, Stands, Verdict};

#[test]
fn a_recovery_is_done_when_clusterd_shows_nothing_any_more() {
    let fault = episode(3, Level::SeparateNPU);
    let heads = [head(2, "id-1", Assertion::Recover, &fault)];
    let mut relay = Relay::new(Settings::default());
    let site = Site::new();
    let step = site.step(&mut relay, Duration::ZERO, &heads, &[]);
    assert!(relay.answered(&step.send, &Ok(()), Duration::ZERO, 0.5).is_empty(), "not yet done");
    let shown = has(&["id-1"]);
    let gone = has(&[]);
    let soon = Duration::from_secs(2);
    assert!(relay.confirm(&shown, &heads, &[], soon).is_empty());
    // ClusterD may have it still in mind and show it again.
    assert!(relay.confirm(&gone, &heads, &[], soon).is_empty());
    assert_eq!(site.step(&mut relay, soon, &heads, &[]).holds[&2], Hold::Confirming);
    // It was lost: it is sent again.
    let late = Duration::from_secs(8);
    relay.confirm(&shown, &heads, &[], late);
    assert_eq!(ids(&site.step(&mut relay, late, &heads, &[])), ["id-1"]);
    assert_eq!(relay.confirm(&gone, &heads, &[], late), [Verdict::Accept(2)]);
}

#[test]
fn where_clusterd_cant_be_looked_at_its_word_has_to_do() {
    let fault = episode(3, Level::SeparateNPU);
    let heads = [head(2, "id-1", Assertion::Recover, &fault)];
    let mut relay = Relay::new(Settings::default());
    let step = Site::new().step(&mut relay, Duration::ZERO, &heads, &[]);
    relay.answered(&step.send, &Ok(()), Duration::ZERO, 0.5);
    assert_eq!(relay.confirm(&View::Forbidden, &heads, &[], Duration::ZERO), [Verdict::Accept(2)]);
    let other = [head(4, "id-2", Assertion::Recover, &fault)];
    let now = Duration::from_secs(1);
    let step = Site::new().step(&mut relay, now, &other, &[]);
    assert_eq!(relay.answered(&step.send, &Ok(()), now, 0.5), [Verdict::Accept(4)]);
}

#[test]
fn what_stands_and_isnt_there_is_sent_again_under_its_own_id() {
    let (fault, note) = (episode(3, Level::SubHealthFault), Note::default());
    let stands = [Stands { id: "id-1", vouched: true, held: true, episode: &fault, note: &note }];
    let mut relay = Relay::new(Settings::default());
    let (site, gone) = (Site::new(), has(&[]));
    site.step(&mut relay, Duration::ZERO, &[], &stands);
    relay.confirm(&gone, &[], &stands, Duration::from_secs(2));
    assert!(
        site.step(&mut relay, Duration::from_secs(2), &[], &stands).send.is_empty(),
        "it may be on its way"
    );
    let mut now = Duration::from_secs(9);
    for round in 1..=3 {
        relay.confirm(&gone, &[], &stands, now);
        let step = site.step(&mut relay, now, &[], &stands);
        assert_eq!(
            step.send.iter().map(|parcel| (parcel.origin, parcel.id.as_str())).collect::<Vec<_>>(),
            [(Origin::Lost, "id-1")]
        );
        relay.answered(&step.send, &Ok(()), now, 0.5);
        assert_eq!(relay.unheard().count(), usize::from(round == 3));
        // Ever more rarely.
        now += Duration::from_secs(9 << round);
    }
    let shown = has(&["id-1"]);
    assert_eq!(relay.confirm(&shown, &[], &stands, now), [Verdict::Confirmed("id-1".to_owned())]);
    assert_eq!((site.step(&mut relay, now, &[], &stands).send.len(), relay.unheard().count()), (0, 0));
}

/// By now another job may be on the device.

#[test]
fn a_kill_is_sent_again_only_if_its_jobs_can_dump() {
    let (fault, note) = (episode(3, Level::SeparateNPU), Note::default());
    let stands = [Stands { id: "id-1", vouched: true, held: true, episode: &fault, note: &note }];
    let mut relay = Relay::new(Settings::default());
    let now = Duration::from_secs(9);
    Site::new().step(&mut relay, Duration::ZERO, &[], &stands);
    relay.confirm(&has(&[]), &[], &stands, now);
    let step = Site::new().step(&mut relay, now, &[], &stands);
    assert_eq!((step.send.len(), step.preflight.contains(&Subject::Npu(3))), (0, true));
    assert_eq!(ids(&Site::new().cleared(3, now).step(&mut relay, now, &[], &stands)), ["id-1"]);
}

#[test]
fn what_has_done_its_work_is_taken_back_once_and_for_all() {
    let fault = episode(3, Level::SeparateNPU);
    let job = super::terms::JobNote {
        dumps: true,
        outcome: Some("dump-success".to_owned()),
        ..super::terms::JobNote::default()
    };
    let note = Note { confirmed: true, jobs: vec![job], ..Note::default() };
    let stands = [Stands { id: "id-1", vouched: true, held: true, episode: &fault, note: &note }];
    let mut relay = Relay::new(Settings::default());
    let site = Site::new();
    site.step(&mut relay, Duration::ZERO, &[], &stands);
    let step = site.step(&mut relay, Duration::ZERO, &[], &stands);
    assert_eq!((step.send[0].origin, step.send[0].assertion), (Origin::Recalled, Assertion::Recover));
    assert_eq!(
        relay.answered(&step.send, &Ok(()), Duration::ZERO, 0.5),
        [Verdict::Recalled("id-1".to_owned())]
    );
    let note = Note { recalled: true, ..note.clone() };
    let stands = [Stands { note: &note, ..stands[0].clone() }];
    let now = Duration::from_secs(20);
    assert!(relay.confirm(&has(&[]), &[], &stands, now).is_empty());
    assert!(site.step(&mut relay, now, &[], &stands).send.is_empty());
    // ClusterD came back with it.
    relay.confirm(&has(&["id-1"]), &[], &stands, now);
    assert_eq!(site.step(&mut relay, now, &[], &stands).send[0].origin, Origin::Recalled);
}

#[test]
fn what_nobody_knows_of_is_taken_back() {
    let mut relay = Relay::new(Settings::default());
    assert_eq!(relay.look_at(false), Some(Duration::ZERO), "what did the last process leave?");
    let left = has(&["id-0"]);
    relay.confirm(&left, &[], &[], Duration::ZERO);
    let step = Site::new().step(&mut relay, Duration::ZERO, &[], &[]);
    assert_eq!((step.send[0].origin, step.send[0].id.as_str()), (Origin::Orphan, "id-0"));
    relay.answered(&step.send, &Ok(()), Duration::ZERO, 0.5);
    assert!(Site::new().step(&mut relay, Duration::from_secs(1), &[], &[]).send.is_empty());
}

#[test]
fn of_a_list_that_isnt_whole_nothing_is_missing() {
    let (fault, note) = (episode(3, Level::SeparateNPU), Note::default());
    let stands = [Stands { id: "id-1", vouched: true, held: true, episode: &fault, note: &note }];
    let mut relay = Relay::new(Settings::default());
    Site::new().step(&mut relay, Duration::ZERO, &[], &stands);
    let cut = View::Has { ids: std::collections::BTreeSet::new(), complete: false };
    let late = Duration::from_mins(1);
    relay.confirm(&cut, &[], &stands, late);
    assert!(Site::new().step(&mut relay, late, &[], &stands).send.is_empty());
    let heads = [head(2, "id-2", Assertion::Recover, &fault)];
    let step = Site::new().step(&mut relay, late, &heads, &[]);
    assert_eq!(relay.answered(&step.send, &Ok(()), late, 0.5), [Verdict::Accept(2)]);
}

#[test]
fn a_kill_of_an_earlier_process_isnt_sent_again_before_a_source_could_say_that_it_is_over() {
    let (fault, note) = (episode(3, Level::SeparateNPU), Note::default());
    let stands = [Stands { id: "id-1", vouched: false, held: true, episode: &fault, note: &note }];
    let mut relay = Relay::new(Settings::default());
    Site::new().step(&mut relay, Duration::ZERO, &[], &stands);
    for (now, sent) in [(CONFIRM, 0), (Duration::from_secs(50), 0), (VOUCH, 1)] {
        relay.confirm(&has(&[]), &[], &stands, now);
        let step = Site::new().cleared(3, now).step(&mut relay, now, &[], &stands);
        assert_eq!(step.send.len(), sent, "after {now:?}");
    }
}

#[test]
fn a_lost_kill_that_the_device_plugin_told_has_to_stand_uncarried_first() {
    let (fault, note) = (episode(3, Level::SeparateNPU), Note::default());
    let stands = [Stands { id: "id-1", vouched: true, held: true, episode: &fault, note: &note }];
    let mut relay = Relay::new(Settings::default());
    let mut site = Site::new().cleared(3, CONFIRM);
    site.carried = true;
    site.step(&mut relay, Duration::ZERO, &[], &stands);
    relay.confirm(&has(&[]), &[], &stands, CONFIRM);
    assert!(site.step(&mut relay, CONFIRM, &[], &stands).send.is_empty());
    site.carried = false;
    assert!(site.step(&mut relay, CONFIRM, &[], &stands).send.is_empty(), "it may be over");
    let settled = CONFIRM + Settings::default().settle;
    assert_eq!(ids(&Site::new().cleared(3, settled).step(&mut relay, settled, &[], &stands)), ["id-1"]);
}

#[test]
fn a_recovery_that_is_refused_is_done_only_when_clusterd_shows_nothing() {
    let fault = episode(3, Level::SeparateNPU);
    let heads = [head(1, "id-1", Assertion::Recover, &fault)];
    let mut relay = Relay::new(Settings::default());
    let (site, mut now) = (Site::new(), Duration::ZERO);
    relay.confirm(&has(&["id-1"]), &heads, &[], now);
    let refused = Err(SendError::Invalid("code".to_owned()));
    let batch = site.step(&mut relay, now, &heads, &[]).send;
    assert!(relay.answered(&batch, &refused, now, 0.5).is_empty());
    // What can't be looked at doesn't prove that it was taken.
    now += CONFIRM;
    assert!(relay.confirm(&View::Forbidden, &heads, &[], now).is_empty());
    // While ClusterD shows it, it is sent again, and looked at ever more rarely.
    let mut looks = 0;
    while now < Duration::from_hours(1) {
        let step = site.step(&mut relay, now, &heads, &[]);
        if step.send.is_empty() {
            assert_eq!(step.holds[&1], Hold::Confirming);
            let look = relay.look_at(true).expect("it waits");
            looks += u32::from(look <= now);
            if look <= now {
                assert!(relay.confirm(&has(&["id-1"]), &heads, &[], now).is_empty());
            }
            now = step.wake.expect("again").min(look.max(now + Duration::from_secs(1)));
        } else {
            relay.answered(&step.send, &refused, now, 0.5);
        }
    }
    assert!(looks < 120, "{looks} looks in an hour");
    // Then there is nothing to be taken back.
    now += Duration::from_mins(5);
    assert_eq!(relay.confirm(&has(&[]), &heads, &[], now), [Verdict::Accept(1)]);
}

#[test]
fn what_clusterd_keeps_in_spite_of_its_word_is_looked_for_and_taken_back_for_ever() {
    let fault = episode(3, Level::SeparateNPU);
    let heads = [head(1, "id-1", Assertion::Recover, &fault)];
    let mut relay = Relay::new(Settings::default());
    let (site, mut now) = (Site::new(), Duration::ZERO);
    let mut verdicts = Vec::new();
    while verdicts.is_empty() {
        relay.confirm(&has(&["id-1"]), &heads, &[], now);
        let step = site.step(&mut relay, now, &heads, &[]);
        if !step.send.is_empty() {
            verdicts = relay.answered(&step.send, &Ok(()), now, 0.5);
        }
        now += Duration::from_secs(10);
        assert!(now < Duration::from_hours(1), "it must not hold up the next for ever");
    }
    assert_eq!(verdicts, [Verdict::Accept(1)]);
    // Nothing waits any more, and it is looked at all the same.
    let look = relay.look_at(false).expect("it isn't certain");
    relay.confirm(&has(&["id-1"]), &[], &[], look);
    assert_eq!(site.step(&mut relay, look.max(now), &[], &[]).send[0].origin, Origin::Orphan);
    assert!(relay.look_at(false).is_some(), "as long as it is there");
}

#[test]
fn what_stands_by_nobodys_word_is_neither_sent_nor_sent_again() {
    let (fault, note) = (episode(3, Level::SeparateNPU), Note::default());
    let stands = [Stands { id: "id-1", vouched: false, held: false, episode: &fault, note: &note }];
    let other = episode(4, Level::SeparateNPU);
    let heads = [Head { vouched: false, held: false, ..head(2, "id-2", Assertion::Occur, &other) }];
    let mut relay = Relay::new(Settings::default());
    for minute in 0..10 {
        let now = Duration::from_mins(minute);
        relay.confirm(&has(&[]), &heads, &stands, now);
        let step = Site::new().cleared(3, now).cleared(4, now).step(&mut relay, now, &heads, &stands);
        assert!(step.send.is_empty(), "after {now:?}");
    }
}
