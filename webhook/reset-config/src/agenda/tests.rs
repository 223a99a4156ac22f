use proptest::prelude::*;

use super::*;

fn key(name: &str) -> Key {
    Key { namespace: "ns".to_owned(), name: name.to_owned(), kind: JobKind::AscendJob }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An agenda with one job that has been looked at.
fn with(outcome: Outcome, now: Instant) -> Agenda {
    let mut agenda = Agenda::default();
    agenda.needed(&key("j"), "u", now);
    assert_eq!(agenda.take(now), Some((key("j"), "u".to_owned())));
    agenda.settle(&key("j"), outcome, now, 0.0);
    agenda
}

fn sound() -> Outcome {
    Outcome::Sound(Some("7".to_owned()))
}

#[test]
fn a_job_is_looked_at_when_it_appears_and_then_left_alone() {
    let now = Instant::now();
    let mut agenda = with(sound(), now);
    // Its status changes all the time.
    agenda.needed(&key("j"), "u", now + seconds(1));
    assert_eq!(agenda.next(), None);
    // Another of the same name.
    agenda.needed(&key("j"), "v", now + seconds(2));
    assert_eq!(agenda.take(now + seconds(2)), Some((key("j"), "v".to_owned())));
    agenda.forget(&key("j"));
    assert_eq!((agenda.next(), agenda.standings()), (None, Standings::default()));
}

#[test]
fn a_config_map_that_goes_is_made_again_within_a_second() {
    let now = Instant::now();
    let mut agenda = with(sound(), now);
    // What was just judged, told by the watch a moment later.
    agenda.config_map_changed("ns", "j", "7", now);
    agenda.config_map_gone("other", "j", now);
    agenda.config_map_gone("ns", "other", now);
    assert_eq!(agenda.next(), None);
    agenda.config_map_gone("ns", "j", now + Duration::from_millis(300));
    assert_eq!(agenda.next(), Some(now + LEAST));
    agenda.take(now + LEAST).expect("due");
    agenda.settle(&key("j"), sound(), now + LEAST, 0.0);
    // Somebody wrote it ten thousand times a second: one look a second.
    for version in 0..10_000 {
        agenda.config_map_changed("ns", "j", &version.to_string(), now + LEAST);
    }
    assert_eq!(agenda.next(), Some(now + 2 * LEAST));
}

#[test]
fn what_went_while_nobody_watched_is_noticed() {
    let now = Instant::now();
    let mut agenda = with(sound(), now);
    agenda.needed(&key("k"), "u", now);
    agenda.take(now).expect("due");
    agenda.settle(&key("k"), sound(), now, 0.0);
    agenda.config_map_list_begins();
    agenda.config_map_changed("ns", "k", "7", now);
    agenda.config_map_list_ends(now + seconds(5));
    assert_eq!(agenda.take(now + seconds(5)).map(|(key, _)| key), Some(key("j")));
    assert_eq!(agenda.next(), None);

    agenda.settle(&key("j"), sound(), now, 0.0);
    agenda.list_begins(JobKind::VolcanoJob);
    agenda.list_ends(JobKind::VolcanoJob);
    assert_eq!(agenda.standings().sound, 2);
    agenda.list_begins(JobKind::AscendJob);
    agenda.needed(&key("k"), "u", now);
    agenda.list_ends(JobKind::AscendJob);
    assert_eq!(agenda.standings().sound, 1);
}

#[test]
fn where_no_watch_tells_it_looks_again_by_itself() {
    let now = Instant::now();
    for (outcome, again) in [
        (Outcome::Sound(None), Some(RECHECK)),
        (sound(), None),
        (Outcome::Unusable, Some(RECHECK)),
        (Outcome::Nothing(Because::NamespaceOptedOut), Some(RECHECK)),
        (Outcome::Nothing(Because::NamespaceEnds), Some(RECHECK)),
        (Outcome::Nothing(Because::Leaving), Some(LEAVING.0)),
        (Outcome::Nothing(Because::NotAsked), None),
        (Outcome::Nothing(Because::Finished), None),
        (Outcome::Refused(None), Some(REFUSED.0)),
        (Outcome::Refused(Some(seconds(77))), Some(seconds(77))),
        (Outcome::Gone, None),
        (Outcome::Unknown, Some(Duration::ZERO)),
    ] {
        let agenda = with(outcome.clone(), now);
        assert_eq!(agenda.next(), again.map(|again| now + again), "{outcome:?}");
    }
}

#[test]
fn pauses_grow_up_to_a_limit_and_begin_anew() {
    let mut now = Instant::now();
    let mut agenda = with(Outcome::Refused(None), now);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let at = agenda.next().expect("again");
        pauses.push((at - now).as_secs());
        now = at;
        agenda.take(now).expect("due");
        // The API server being away in between is no answer.
        agenda.settle(&key("j"), Outcome::Unknown, now, 1.0);
        agenda.take(now).expect("due");
        agenda.settle(&key("j"), Outcome::Refused(None), now, 0.0);
    }
    assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
    now = agenda.next().expect("again");
    agenda.take(now).expect("due");
    agenda.settle(&key("j"), Outcome::Unusable, now, 0.0);
    agenda.settle(&key("j"), Outcome::Refused(None), now, 1.0);
    assert_eq!(agenda.next(), Some(now + REFUSED.0 + REFUSED.0 / 4));
}

#[test]
fn a_job_that_had_ended_and_changes_is_looked_at_again_seldom() {
    let now = Instant::now();
    let mut agenda = with(Outcome::Nothing(Because::Finished), now);
    agenda.needed(&key("j"), "u", now + seconds(1));
    agenda.needed(&key("j"), "u", now + seconds(2));
    assert_eq!(agenda.next(), Some(now + FINISHED));
}

#[test]
fn b84_one_event_for_one_state_and_no_flood_of_different_ones() {
    let now = Instant::now();
    let mut agenda = with(Outcome::Unusable, now);
    let mut told = Vec::new();
    for second in 0..7200 {
        let now = now + seconds(second);
        // Somebody writes something else every second for a minute and a half.
        let text = format!("text {}", second.min(90));
        if let Some(before) = agenda.may_tell(&key("j"), &text, now) {
            agenda.told(&key("j"), &text, now);
            told.push((second, before));
        }
    }
    assert_eq!(told, [(0, 0), (60, 0), (120, 0), (1920, 1), (3720, 2), (5520, 3)]);
    assert_eq!(agenda.may_tell(&key("k"), "nobody", now), None);
}

#[test]
fn two_kinds_of_one_name_share_the_config_map() {
    let now = Instant::now();
    let volcano = Key { kind: JobKind::VolcanoJob, ..key("j") };
    let mut agenda = with(sound(), now);
    agenda.needed(&volcano, "w", now);
    agenda.take(now).expect("due");
    agenda.settle(&volcano, sound(), now, 0.0);
    agenda.config_map_gone("ns", "j", now);
    let later = now + LEAST;
    let due: Vec<_> = std::iter::from_fn(|| agenda.take(later).map(|(key, _)| key)).collect();
    assert_eq!(due, [key("j"), volcano]);
}

/// Anything that can happen.
#[derive(Debug, Clone)]
enum Step {
    Needed(u8, u8),
    Forget(u8),
    Relist(Vec<u8>),
    Changed(u8, u8),
    ConfigMapGone(u8),
    ConfigMapRelist(Vec<u8>),
    Settle(Outcome),
    Wait(u16),
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        proptest::option::of("[1-3]").prop_map(Outcome::Sound),
        Just(Outcome::Nothing(Because::Leaving)),
        Just(Outcome::Nothing(Because::Finished)),
        Just(Outcome::Unusable),
        Just(Outcome::Refused(None)),
        Just(Outcome::Gone),
        Just(Outcome::Unknown),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let job = 0..3_u8;
    prop_oneof![
        (job.clone(), 0..2_u8).prop_map(|(job, uid)| Step::Needed(job, uid)),
        job.clone().prop_map(Step::Forget),
        proptest::collection::vec(job.clone(), 0..3).prop_map(Step::Relist),
        (job.clone(), 0..3_u8).prop_map(|(job, version)| Step::Changed(job, version)),
        job.clone().prop_map(Step::ConfigMapGone),
        proptest::collection::vec(job, 0..3).prop_map(Step::ConfigMapRelist),
        outcome().prop_map(Step::Settle),
        (0..900_u16).prop_map(Step::Wait),
    ]
}

fn counted(standings: Standings) -> u64 {
    standings.pending + standings.sound + standings.nothing + standings.unusable + standings.refused
}

proptest! {
    /// Whatever happens, in whatever order: what is due is known, a job counts once, and a ConfigMap that is gone is
    /// looked for soon.
    #[test]
    fn nothing_is_lost(steps in proptest::collection::vec(step(), 0..80)) {
        let mut agenda = Agenda::default();
        let mut now = Instant::now();
        let name = |job: u8| format!("j{job}");
        for step in steps {
            match step {
                Step::Needed(job, uid) => {
                    let known = agenda.jobs.get(&key(&name(job))).is_some_and(|entry| *entry.uid == *uid.to_string());
                    agenda.needed(&key(&name(job)), &uid.to_string(), now);
                    prop_assert!(known || agenda.jobs[&key(&name(job))].due == Some(now));
                }
                Step::Forget(job) => agenda.forget(&key(&name(job))),
                Step::Relist(jobs) => {
                    agenda.list_begins(JobKind::AscendJob);
                    for job in &jobs {
                        agenda.needed(&key(&name(*job)), "0", now);
                    }
                    agenda.list_ends(JobKind::AscendJob);
                    prop_assert!(agenda.jobs.keys().all(|key| jobs.iter().any(|job| name(*job) == key.name)));
                }
                Step::Changed(job, version) => {
                    agenda.config_map_changed("ns", &name(job), &version.to_string(), now);
                }
                Step::ConfigMapGone(job) => {
                    agenda.config_map_gone("ns", &name(job), now);
                    if let Some(entry) = agenda.jobs.get(&key(&name(job))) {
                        prop_assert!(entry.due.expect("due") <= now + LEAST);
                    }
                }
                Step::ConfigMapRelist(jobs) => {
                    agenda.config_map_list_begins();
                    for job in &jobs {
                        agenda.config_map_changed("ns", &name(*job), "1", now);
                    }
                    agenda.config_map_list_ends(now);
                    for (key, entry) in &agenda.jobs {
                        let listed = jobs.iter().any(|job| name(*job) == key.name);
                        prop_assert!(listed || entry.version.is_none());
                    }
                }
                Step::Settle(outcome) => {
                    if let Some((key, _)) = agenda.take(now) {
                        let looked = agenda.jobs[&key].looked;
                        prop_assert_eq!(looked, Some(now));
                        agenda.settle(&key, outcome, now, 0.5);
                    }
                }
                Step::Wait(seconds) => now += Duration::from_secs(seconds.into()),
            }
            let due: BTreeSet<(Instant, Key)> =
                agenda.jobs.iter().filter_map(|(key, entry)| Some((entry.due?, key.clone()))).collect();
            prop_assert_eq!(&agenda.due, &due);
            prop_assert_eq!(counted(agenda.standings()), agenda.jobs.len() as u64);
        }
    }
}
