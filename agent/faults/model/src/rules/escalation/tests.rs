use proptest::prelude::*;

use super::*;

const NPU: Subject = Subject::Npu(3);
const SECOND: u64 = 1000;
const DAY: u64 = 86_400 * SECOND;

fn code(number: u32) -> Code {
    Code::from(number)
}

fn frequency_tracker(times: u64, window: u64, level: Level, release: Option<u64>) -> EscalationTracker {
    let mut rules = Rules::default();
    let release = release.map(Duration::from_secs);
    rules.add_frequency_rule(
        code(1),
        FrequencyRule::new(times, Duration::from_secs(window), level, release).expect("valid"),
    );
    EscalationTracker::with_tracks(rules, Vec::new())
}

/// MindCluster's rules for a RoCE link that is down.
fn link_tracker() -> EscalationTracker {
    let mut rules = Rules::default();
    let day = Duration::from_hours(24);
    rules.add_frequency_rule(
        code(1),
        FrequencyRule::new(5, day, Level::ManuallySeparateNPU, Some(day * 2)).expect("valid"),
    );
    let (after, recover) = (Duration::from_secs(20), Duration::from_mins(1));
    rules
        .add_duration_rule(code(1), DurationRule::new(after, recover, Level::PreSeparateNPU).expect("valid"));
    EscalationTracker::with_tracks(rules, Vec::new())
}

fn level(escalation: &mut EscalationTracker, now: u64) -> Option<Level> {
    escalation.escalated_level(NPU, &code(1), now).map(|raise| raise.level)
}

#[test]
fn does_nothing_without_rules() {
    let mut escalation = EscalationTracker::default();
    escalation.record_occurrence(NPU, &code(1), 0);
    assert_eq!(escalation.record_notice(NPU, &code(1), 1), None);
    assert_eq!(level(&mut escalation, DAY), None);
    assert_eq!((escalation.next_deadline(), escalation.tracks.len()), (None, 0));
}

#[test]
fn raises_repeating_faults_until_they_end() {
    let mut escalation = frequency_tracker(3, 60, Level::SeparateNPU, None);
    for (at, expected) in [(0, None), (10, None), (59, Some(Level::SeparateNPU))] {
        escalation.record_occurrence(NPU, &code(1), at * SECOND);
        // An active fault isn't counted again.
        escalation.record_occurrence(NPU, &code(1), at * SECOND);
        assert_eq!(level(&mut escalation, at * SECOND), expected, "at {at}");
        // Devices are counted separately.
        assert_eq!(escalation.escalated_level(Subject::Npu(4), &code(1), at * SECOND), None);
        if expected.is_none() {
            escalation.record_recovery(NPU, &code(1), at * SECOND + 1);
        }
    }
    let raise = escalation.escalated_level(NPU, &code(1), DAY).expect("still active");
    assert_eq!(raise.reason, EscalationReason::Repeated { times: 3, window: Duration::from_mins(1) });
    escalation.record_recovery(NPU, &code(1), DAY + 1);
    assert_eq!(level(&mut escalation, DAY + 1), None);
    // The count was reset.
    escalation.record_occurrence(NPU, &code(1), DAY + 2);
    assert_eq!(level(&mut escalation, DAY + 2), None);
}

#[test]
fn ignores_occurrences_before_the_window() {
    let mut escalation = frequency_tracker(2, 60, Level::SeparateNPU, None);
    for (at, expected) in [(0, None), (60_001, None), (120_001, Some(Level::SeparateNPU))] {
        escalation.record_occurrence(NPU, &code(1), at);
        assert_eq!(level(&mut escalation, at), expected, "at {at}");
        escalation.record_recovery(NPU, &code(1), at);
    }
    escalation.advance(DAY);
    assert_eq!(escalation.tracks.len(), 0, "the track is dropped");
}

#[test]
fn restores_raised_levels_in_a_new_process() {
    // A duration rule still applies, and ends after the recovery time if the fault is inactive.
    for is_active in [true, false] {
        let mut escalation = link_tracker();
        escalation.restore(NPU, &code(1), is_active, Some(Level::PreSeparateNPU), 5 * SECOND);
        assert_eq!(level(&mut escalation, 6 * SECOND), Some(Level::PreSeparateNPU));
        assert_eq!(level(&mut escalation, 66 * SECOND).is_some(), is_active);
    }
    // A manual separation lasts until its release.
    let mut escalation = link_tracker();
    escalation.restore(NPU, &code(1), false, Some(Level::ManuallySeparateNPU), 0);
    assert_eq!(level(&mut escalation, DAY), Some(Level::ManuallySeparateNPU));
    assert_eq!(level(&mut escalation, 3 * DAY), None);
    // A frequency rule applies while the fault is active.
    let mut escalation = frequency_tracker(2, 60, Level::SeparateNPU, None);
    escalation.restore(NPU, &code(1), true, Some(Level::SeparateNPU), 0);
    assert_eq!(level(&mut escalation, DAY), Some(Level::SeparateNPU));
    escalation.record_recovery(NPU, &code(1), DAY);
    assert_eq!(level(&mut escalation, DAY), None);
    // A restart isn't an occurrence.
    let mut escalation = frequency_tracker(2, 60, Level::SeparateNPU, None);
    escalation.restore(NPU, &code(1), true, None, 0);
    escalation.record_recovery(NPU, &code(1), 1);
    escalation.record_occurrence(NPU, &code(1), 2);
    assert_eq!(level(&mut escalation, 2), None);
    // A fault without a rule isn't tracked.
    let mut escalation = EscalationTracker::default();
    escalation.restore(NPU, &code(1), true, Some(Level::SeparateNPU), 0);
    assert_eq!((level(&mut escalation, 1), escalation.tracks.len()), (None, 0));
}

#[test]
fn raises_a_repeating_notice_once() {
    let mut escalation = frequency_tracker(2, 60, Level::SeparateNPU, None);
    assert_eq!(escalation.record_notice(NPU, &code(1), 0), None);
    let raise = escalation.record_notice(NPU, &code(1), 1).expect("the second");
    assert_eq!(raise.level, Level::SeparateNPU);
    assert_eq!(level(&mut escalation, 1), None, "no fault is active");
    assert_eq!(escalation.record_notice(NPU, &code(1), 2), None, "the count was reset");
}

#[test]
fn manual_separation_lasts_until_its_release() {
    let mut escalation = frequency_tracker(1, 60, Level::ManuallySeparateNPU, Some(120));
    escalation.record_occurrence(NPU, &code(1), 0);
    escalation.record_recovery(NPU, &code(1), 1);
    assert_eq!(level(&mut escalation, 120 * SECOND), Some(Level::ManuallySeparateNPU));
    assert_eq!(escalation.next_deadline(), Some(120 * SECOND + 1));
    // Another match restarts the release time.
    assert_eq!(
        escalation.record_notice(NPU, &code(1), 100 * SECOND).map(|raise| raise.level),
        Some(Level::ManuallySeparateNPU)
    );
    // The caller's clock went back from 120 s.
    assert_eq!(escalation.next_deadline(), Some(240 * SECOND + 1));
    assert_eq!(escalation.advance(240 * SECOND), []);
    assert_eq!(escalation.advance(240 * SECOND + 1), [(NPU, code(1))]);
    assert_eq!(level(&mut escalation, 240 * SECOND + 1), None);

    let mut for_ever = frequency_tracker(1, 60, Level::ManuallySeparateNPU, None);
    for_ever.record_occurrence(NPU, &code(1), 0);
    for_ever.record_recovery(NPU, &code(1), 1);
    assert_eq!(level(&mut for_ever, 1000 * DAY), Some(Level::ManuallySeparateNPU));
}

#[test]
fn raises_lasting_faults_until_the_recovery_time() {
    let mut escalation = link_tracker();
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
    // Inactive for less than the recovery time.
    escalation.record_recovery(NPU, &code(1), 30 * SECOND);
    escalation.record_occurrence(NPU, &code(1), 90 * SECOND);
    assert_eq!(level(&mut escalation, 90 * SECOND), Some(Level::PreSeparateNPU));
    escalation.record_recovery(NPU, &code(1), 100 * SECOND);
    assert_eq!(level(&mut escalation, 160 * SECOND), Some(Level::PreSeparateNPU));
    assert_eq!(level(&mut escalation, 160 * SECOND + 1), None);
}

#[test]
fn ignores_short_faults() {
    let mut escalation = link_tracker();
    for round in 0..100 {
        escalation.record_occurrence(NPU, &code(1), round * 30 * SECOND);
        escalation.record_recovery(NPU, &code(1), round * 30 * SECOND + 20 * SECOND);
    }
    assert_eq!(level(&mut escalation, 3000 * SECOND), None);
}

#[test]
fn frequency_rule_counts_lasting_faults_if_there_are_both_rules() {
    let mut escalation = link_tracker();
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
fn tolerates_a_clock_that_goes_back() {
    let mut escalation = link_tracker();
    escalation.record_occurrence(NPU, &code(1), 100 * SECOND);
    assert_eq!(level(&mut escalation, 0), None);
    escalation.record_recovery(NPU, &code(1), 50 * SECOND);
    assert_eq!(level(&mut escalation, u64::MAX), None);
    escalation.record_occurrence(NPU, &code(1), 0);
    assert_eq!(level(&mut escalation, u64::MAX), None, "no time has passed");
}

#[test]
fn applies_replaced_rules() {
    let mut escalation = link_tracker();
    escalation.record_occurrence(NPU, &code(1), 0);
    assert_eq!(level(&mut escalation, 30 * SECOND), Some(Level::PreSeparateNPU));
    let mut rules = Rules::default();
    rules.add_duration_rule(
        code(1),
        DurationRule::new(Duration::ZERO, Duration::ZERO, Level::SeparateNPU).expect("valid"),
    );
    escalation.set_rules(rules);
    assert_eq!(level(&mut escalation, 30 * SECOND), Some(Level::SeparateNPU));
    escalation.set_rules(Rules::default());
    assert_eq!(level(&mut escalation, 30 * SECOND), None);
    assert_eq!(escalation.tracks.len(), 0);
}

#[test]
fn tracks_are_bounded_and_active_faults_are_kept() {
    let mut rules = Rules::default();
    let most = u32::try_from(MAX_TRACKED).expect("small");
    for number in 0..most + 50 {
        let rule = FrequencyRule::new(2, Duration::from_hours(1), Level::SeparateNPU, None).expect("valid");
        rules.add_frequency_rule(code(number), rule);
    }
    let mut escalation = EscalationTracker::with_tracks(rules, Vec::new());
    escalation.record_occurrence(NPU, &code(0), 0);
    for number in 1..most + 50 {
        escalation.record_notice(NPU, &code(number), number.into());
    }
    assert_eq!((escalation.tracks.len(), escalation.untracked()), (MAX_TRACKED, 0));
    assert!(escalation.tracks.contains_key(&(NPU, code(0))));
    for number in 0..most + 50 {
        escalation.record_occurrence(NPU, &code(number), 1 << 20);
    }
    assert_eq!(escalation.tracks.len(), MAX_TRACKED);
    assert!(escalation.untracked() > 0);
}

#[derive(Debug, Clone)]
enum Step {
    Occurred,
    Recovered,
    Happened,
    Read,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step =
        prop_oneof![Just(Step::Occurred), Just(Step::Recovered), Just(Step::Happened), Just(Step::Read)];
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
                FrequencyRule::new(times, seconds(window), level, release).expect("valid"),
            );
        }
        if let Some((after, recover)) = lasting {
            let rule =
                DurationRule::new(seconds(after), seconds(recover), Level::PreSeparateNPU).expect("valid");
            rules.add_duration_rule(code(1), rule);
        }
        rules
    })
}

proptest! {
    /// Levels don't depend on the number of reads, and `next_deadline` misses no change.
    #[test]
    fn reads_change_nothing(rules in rules(), steps in steps(), reads in 1..7_u64) {
        let mut rarely = EscalationTracker::with_tracks(rules.clone(), Vec::new());
        let mut often = EscalationTracker::with_tracks(rules, Vec::new());
        let mut now = 0;
        for (pause, step) in steps {
            for _ in 0..reads {
                let known = often.escalated_level(NPU, &code(1), now);
                let next = often.next_deadline();
                now += pause / reads;
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
                Step::Read => prop_assert_eq!(rarely.escalated_level(NPU, &code(1), now), often.escalated_level(NPU, &code(1), now)),
            }
        }
        prop_assert_eq!(rarely.escalated_level(NPU, &code(1), now), often.escalated_level(NPU, &code(1), now));
    }

    /// Without a duration rule, a fault is raised exactly when it occurred often enough since it was last raised.
    #[test]
    fn counts_as_a_simple_model(times in 1..5_u64, pauses in prop::collection::vec(1..40_000_u64, 0..60)) {
        let mut escalation = frequency_tracker(times, 60, Level::SeparateNPU, None);
        let (mut now, mut occurrences) = (0, Vec::new());
        for pause in pauses {
            now += pause;
            escalation.record_occurrence(NPU, &code(1), now);
            occurrences.push(now);
            let expected = occurrences.iter().filter(|&&at| at + 60 * SECOND >= now).count() as u64 >= times;
            if expected {
                occurrences.clear();
            }
            prop_assert_eq!(level(&mut escalation, now).is_some(), expected);
            escalation.record_recovery(NPU, &code(1), now);
            prop_assert_eq!(level(&mut escalation, now), None);
        }
    }
}
