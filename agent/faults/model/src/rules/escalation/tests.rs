use proptest::prelude::*;

use super::*;

const NPU: Subject = Subject::Npu(3);
const SECOND: u64 = 1000;
const DAY: u64 = 86_400 * SECOND;

fn code(number: u32) -> Code {
    Code::from(number)
}

fn repeats(times: u64, window: u64, level: Level, release: Option<u64>) -> EscalationTracker {
    let mut rules = Rules::default();
    let release = release.map(Duration::from_secs);
    rules.add_frequency_rule(
        code(1),
        FrequencyRule::new(times, Duration::from_secs(window), level, release).expect("sound"),
    );
    EscalationTracker::new(rules)
}

/// As MindCluster ships for a RoCE link that is down.
fn link() -> EscalationTracker {
    let mut rules = Rules::default();
    let day = Duration::from_hours(24);
    rules.add_frequency_rule(
        code(1),
        FrequencyRule::new(5, day, Level::ManuallySeparateNPU, Some(day * 2)).expect("sound"),
    );
    let (after, recover) = (Duration::from_secs(20), Duration::from_mins(1));
    rules
        .add_duration_rule(code(1), DurationRule::new(after, recover, Level::PreSeparateNPU).expect("sound"));
    EscalationTracker::new(rules)
}

fn level(escalation: &mut EscalationTracker, now: u64) -> Option<Level> {
    escalation.escalated_level(NPU, &code(1), now).map(|raise| raise.level)
}

#[test]
fn without_rules_nothing_is_raised_or_kept() {
    let mut escalation = EscalationTracker::default();
    escalation.record_occurrence(NPU, &code(1), 0);
    assert_eq!(escalation.record_notice(NPU, &code(1), 1), None);
    assert_eq!(level(&mut escalation, DAY), None);
    assert_eq!((escalation.next_deadline(), escalation.tracks.len()), (None, 0));
}

#[test]
fn a_fault_that_repeats_is_raised_until_it_goes() {
    let mut escalation = repeats(3, 60, Level::SeparateNPU, None);
    for (at, expected) in [(0, None), (10, None), (59, Some(Level::SeparateNPU))] {
        escalation.record_occurrence(NPU, &code(1), at * SECOND);
        // One that stands hasn't come again.
        escalation.record_occurrence(NPU, &code(1), at * SECOND);
        assert_eq!(level(&mut escalation, at * SECOND), expected, "at {at}");
        // Another device has its own count.
        assert_eq!(escalation.escalated_level(Subject::Npu(4), &code(1), at * SECOND), None);
        if expected.is_none() {
            escalation.record_recovery(NPU, &code(1), at * SECOND + 1);
        }
    }
    let raise = escalation.escalated_level(NPU, &code(1), DAY).expect("still there");
    assert_eq!(raise.reason, EscalationReason::Repeated { times: 3, window: Duration::from_mins(1) });
    escalation.record_recovery(NPU, &code(1), DAY + 1);
    assert_eq!(level(&mut escalation, DAY + 1), None);
    // Counting began anew.
    escalation.record_occurrence(NPU, &code(1), DAY + 2);
    assert_eq!(level(&mut escalation, DAY + 2), None);
}

#[test]
fn what_came_before_the_window_does_not_count() {
    let mut escalation = repeats(2, 60, Level::SeparateNPU, None);
    for (at, expected) in [(0, None), (60_001, None), (120_001, Some(Level::SeparateNPU))] {
        escalation.record_occurrence(NPU, &code(1), at);
        assert_eq!(level(&mut escalation, at), expected, "at {at}");
        escalation.record_recovery(NPU, &code(1), at);
    }
    escalation.advance(DAY);
    assert_eq!(escalation.tracks.len(), 0, "nothing is kept of it");
}

#[test]
fn a_new_process_goes_on_with_what_was_raised() {
    // What stood long enough still does, and one that doesn't stand any more is over after its time.
    for stands in [true, false] {
        let mut escalation = link();
        escalation.restore(NPU, &code(1), stands, Some(Level::PreSeparateNPU), 5 * SECOND);
        assert_eq!(level(&mut escalation, 6 * SECOND), Some(Level::PreSeparateNPU));
        assert_eq!(level(&mut escalation, 66 * SECOND).is_some(), stands);
    }
    // A device that was separated by hand is until it is released.
    let mut escalation = link();
    escalation.restore(NPU, &code(1), false, Some(Level::ManuallySeparateNPU), 0);
    assert_eq!(level(&mut escalation, DAY), Some(Level::ManuallySeparateNPU));
    assert_eq!(level(&mut escalation, 3 * DAY), None);
    // One that repeated is at its level as long as it stands.
    let mut escalation = repeats(2, 60, Level::SeparateNPU, None);
    escalation.restore(NPU, &code(1), true, Some(Level::SeparateNPU), 0);
    assert_eq!(level(&mut escalation, DAY), Some(Level::SeparateNPU));
    escalation.record_recovery(NPU, &code(1), DAY);
    assert_eq!(level(&mut escalation, DAY), None);
    // A restart isn't a coming.
    let mut escalation = repeats(2, 60, Level::SeparateNPU, None);
    escalation.restore(NPU, &code(1), true, None, 0);
    escalation.record_recovery(NPU, &code(1), 1);
    escalation.record_occurrence(NPU, &code(1), 2);
    assert_eq!(level(&mut escalation, 2), None);
    // What no rule is for any more isn't followed.
    let mut escalation = EscalationTracker::default();
    escalation.restore(NPU, &code(1), true, Some(Level::SeparateNPU), 0);
    assert_eq!((level(&mut escalation, 1), escalation.tracks.len()), (None, 0));
}

#[test]
fn a_notice_that_repeats_is_raised_once() {
    let mut escalation = repeats(2, 60, Level::SeparateNPU, None);
    assert_eq!(escalation.record_notice(NPU, &code(1), 0), None);
    let raise = escalation.record_notice(NPU, &code(1), 1).expect("the second");
    assert_eq!(raise.level, Level::SeparateNPU);
    assert_eq!(level(&mut escalation, 1), None, "nothing stands");
    assert_eq!(escalation.record_notice(NPU, &code(1), 2), None, "counting began anew");
}

#[test]
fn a_device_is_separated_until_it_is_released() {
    let mut escalation = repeats(1, 60, Level::ManuallySeparateNPU, Some(120));
    escalation.record_occurrence(NPU, &code(1), 0);
    escalation.record_recovery(NPU, &code(1), 1);
    assert_eq!(level(&mut escalation, 120 * SECOND), Some(Level::ManuallySeparateNPU));
    assert_eq!(escalation.next_deadline(), Some(120 * SECOND + 1));
    // Once more, and the time begins anew.
    assert_eq!(
        escalation.record_notice(NPU, &code(1), 100 * SECOND).map(|raise| raise.level),
        Some(Level::ManuallySeparateNPU)
    );
    // The caller's clock went back meanwhile: it was 120 s already.
    assert_eq!(escalation.next_deadline(), Some(240 * SECOND + 1));
    assert_eq!(escalation.advance(240 * SECOND), []);
    assert_eq!(escalation.advance(240 * SECOND + 1), [(NPU, code(1))]);
    assert_eq!(level(&mut escalation, 240 * SECOND + 1), None);

    let mut for_ever = repeats(1, 60, Level::ManuallySeparateNPU, None);
    for_ever.record_occurrence(NPU, &code(1), 0);
    for_ever.record_recovery(NPU, &code(1), 1);
    assert_eq!(level(&mut for_ever, 1000 * DAY), Some(Level::ManuallySeparateNPU));
    for_ever.release(Subject::Npu(4));
    assert_eq!(level(&mut for_ever, 1000 * DAY), Some(Level::ManuallySeparateNPU));
    for_ever.release(NPU);
    assert_eq!(level(&mut for_ever, 1000 * DAY), None);
}

#[test]
fn a_fault_that_lasts_is_raised_and_has_to_be_away_for_a_time() {
    let mut escalation = link();
    escalation.record_occurrence(NPU, &code(1), 0);
    assert_eq!(escalation.next_deadline(), Some(20 * SECOND + 1));
    assert_eq!(level(&mut escalation, 20 * SECOND), None);
    assert_eq!(escalation.advance(20 * SECOND + 1), [(NPU, code(1))]);
    let raise = escalation.escalated_level(NPU, &code(1), 20 * SECOND + 1).expect("raised");
    assert_eq!(
        raise,
        EscalatedLevel {
            level: Level::PreSeparateNPU,
            reason: EscalationReason::Lasted { after: Duration::from_secs(20) }
        }
    );
    // It flaps: away for less than a minute is not away.
    escalation.record_recovery(NPU, &code(1), 30 * SECOND);
    escalation.record_occurrence(NPU, &code(1), 90 * SECOND);
    assert_eq!(level(&mut escalation, 90 * SECOND), Some(Level::PreSeparateNPU));
    escalation.record_recovery(NPU, &code(1), 100 * SECOND);
    assert_eq!(level(&mut escalation, 160 * SECOND), Some(Level::PreSeparateNPU));
    assert_eq!(level(&mut escalation, 160 * SECOND + 1), None);
}

#[test]
fn a_short_fault_is_nothing() {
    let mut escalation = link();
    for round in 0..100 {
        escalation.record_occurrence(NPU, &code(1), round * 30 * SECOND);
        escalation.record_recovery(NPU, &code(1), round * 30 * SECOND + 20 * SECOND);
    }
    assert_eq!(level(&mut escalation, 3000 * SECOND), None);
}

#[test]
fn how_often_it_lasted_counts_where_both_rules_are() {
    let mut escalation = link();
    for round in 0..5 {
        let begin = round * 200 * SECOND;
        assert_ne!(level(&mut escalation, begin), Some(Level::ManuallySeparateNPU), "round {round}");
        escalation.record_occurrence(NPU, &code(1), begin);
        escalation.record_recovery(NPU, &code(1), begin + 30 * SECOND);
    }
    assert_eq!(level(&mut escalation, 1000 * SECOND), Some(Level::ManuallySeparateNPU));
    let released = 820 * SECOND + 2 * DAY;
    assert_eq!(level(&mut escalation, released), Some(Level::ManuallySeparateNPU));
    assert_eq!(level(&mut escalation, released + 1), None);
}

#[test]
fn a_clock_that_goes_back_stands_still() {
    let mut escalation = link();
    escalation.record_occurrence(NPU, &code(1), 100 * SECOND);
    assert_eq!(level(&mut escalation, 0), None);
    escalation.record_recovery(NPU, &code(1), 50 * SECOND);
    assert_eq!(level(&mut escalation, u64::MAX), None);
    escalation.record_occurrence(NPU, &code(1), 0);
    assert_eq!(level(&mut escalation, u64::MAX), None, "no time has passed");
}

#[test]
fn other_rules_take_over() {
    let mut escalation = link();
    escalation.record_occurrence(NPU, &code(1), 0);
    assert_eq!(level(&mut escalation, 30 * SECOND), Some(Level::PreSeparateNPU));
    let mut rules = Rules::default();
    rules.add_duration_rule(
        code(1),
        DurationRule::new(Duration::ZERO, Duration::ZERO, Level::SeparateNPU).expect("sound"),
    );
    escalation.set_rules(rules);
    assert_eq!(level(&mut escalation, 30 * SECOND), Some(Level::SeparateNPU));
    escalation.set_rules(Rules::default());
    assert_eq!(level(&mut escalation, 30 * SECOND), None);
    assert_eq!(escalation.tracks.len(), 0);
}

#[test]
fn memory_is_bounded_and_what_stands_is_kept() {
    let mut rules = Rules::default();
    let most = u32::try_from(MOST).expect("small");
    for number in 0..most + 50 {
        let rule = FrequencyRule::new(2, Duration::from_hours(1), Level::SeparateNPU, None).expect("sound");
        rules.add_frequency_rule(code(number), rule);
    }
    let mut escalation = EscalationTracker::new(rules);
    escalation.record_occurrence(NPU, &code(0), 0);
    for number in 1..most + 50 {
        escalation.record_notice(NPU, &code(number), number.into());
    }
    assert_eq!((escalation.tracks.len(), escalation.untracked()), (MOST, 0));
    assert!(escalation.tracks.contains_key(&(NPU, code(0))));
    for number in 0..most + 50 {
        escalation.record_occurrence(NPU, &code(number), 1 << 20);
    }
    assert_eq!(escalation.tracks.len(), MOST);
    assert!(escalation.untracked() > 0, "and it says so");
}

#[derive(Debug, Clone)]
enum Step {
    Occurred,
    Recovered,
    Happened,
    Look,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step =
        prop_oneof![Just(Step::Occurred), Just(Step::Recovered), Just(Step::Happened), Just(Step::Look)];
    prop::collection::vec((0..40_000_u64, step), 0..60)
}

fn rules() -> impl Strategy<Value = Rules> {
    let level =
        prop::sample::select(vec![Level::SubHealthFault, Level::SeparateNPU, Level::ManuallySeparateNPU]);
    let frequency = prop::option::of((1..4_u64, 60..120_u64, level, prop::option::of(60..200_u64)));
    let lasting = prop::option::of((0..30_u64, 0..60_u64));
    (frequency, lasting).prop_map(|(frequency, lasting)| {
        let mut rules = Rules::default();
        let seconds = Duration::from_secs;
        if let Some((times, window, level, release)) = frequency {
            let release = release.filter(|_| level == Level::ManuallySeparateNPU).map(seconds);
            rules.add_frequency_rule(
                code(1),
                FrequencyRule::new(times, seconds(window), level, release).expect("sound"),
            );
        }
        if let Some((after, recover)) = lasting {
            let rule =
                DurationRule::new(seconds(after), seconds(recover), Level::PreSeparateNPU).expect("sound");
            rules.add_duration_rule(code(1), rule);
        }
        rules
    })
}

proptest! {
    /// However often it is looked in between, what is raised is the same; and `next` misses no change.
    #[test]
    fn looking_changes_nothing(rules in rules(), steps in steps(), looks in 1..7_u64) {
        let mut rarely = EscalationTracker::new(rules.clone());
        let mut often = EscalationTracker::new(rules);
        let mut now = 0;
        for (pause, step) in steps {
            for _ in 0..looks {
                let known = often.escalated_level(NPU, &code(1), now);
                let next = often.next_deadline();
                now += pause / looks;
                let changed = often.advance(now);
                prop_assert_eq!(changed.is_empty(), often.escalated_level(NPU, &code(1), now) == known);
                if next.is_none_or(|next| next > now) {
                    prop_assert_eq!(&changed, &[]);
                }
            }
            match step {
                Step::Occurred => { rarely.record_occurrence(NPU, &code(1), now); often.record_occurrence(NPU, &code(1), now); }
                Step::Recovered => { rarely.record_recovery(NPU, &code(1), now); often.record_recovery(NPU, &code(1), now); }
                Step::Happened => {
                    prop_assert_eq!(rarely.record_notice(NPU, &code(1), now), often.record_notice(NPU, &code(1), now));
                }
                Step::Look => prop_assert_eq!(rarely.escalated_level(NPU, &code(1), now), often.escalated_level(NPU, &code(1), now)),
            }
        }
        prop_assert_eq!(rarely.escalated_level(NPU, &code(1), now), often.escalated_level(NPU, &code(1), now));
    }

    /// A fault without a rule for lasting is raised exactly when it came often enough since it was last raised.
    #[test]
    fn counting_is_as_by_hand(times in 1..5_u64, pauses in prop::collection::vec(1..40_000_u64, 0..60)) {
        let mut escalation = repeats(times, 60, Level::SeparateNPU, None);
        let (mut now, mut came) = (0, Vec::new());
        for pause in pauses {
            now += pause;
            escalation.record_occurrence(NPU, &code(1), now);
            came.push(now);
            let expected = came.iter().filter(|&&at| at + 60 * SECOND >= now).count() as u64 >= times;
            if expected {
                came.clear();
            }
            prop_assert_eq!(level(&mut escalation, now).is_some(), expected);
            escalation.record_recovery(NPU, &code(1), now);
            prop_assert_eq!(level(&mut escalation, now), None);
        }
    }
}
