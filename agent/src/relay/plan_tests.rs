use std::collections::BTreeMap;
use std::time::Duration;

use swansong_clusterd::SendError;
use swansong_fault_model::{Assertion, Code, Level, Subject};

use super::episode::Episode;
use super::plan::Relay;
use super::preflight::{Objection, Why};
use super::reconcile::View;
use super::settings::Settings;
use super::terms::{Head, Hold, Preflight, Stands, Step, Verdict, World};

const SETTLED: Duration = Duration::from_secs(5);

pub(super) fn episode(npu: u32, level: Level) -> Episode {
    Episode {
        subject: Subject::Npu(npu),
        code: Code::from(0x80E0_1801),
        level,
        because: "the table says so".to_owned(),
        severity: None,
        name: None,
        devices: vec![npu],
        began: 1_784_000_000_000,
        source: "dcmi".to_owned(),
        once: false,
        raised: false,
    }
}

pub(super) fn head<'a>(seq: u64, id: &'a str, assertion: Assertion, episode: &'a Episode) -> Head<'a> {
    Head { seq, id, assertion, offered: false, vouched: true, held: true, over: None, episode }
}

/// A world in which nothing is carried and all jobs can dump.
pub(super) struct Site {
    preflights: BTreeMap<Subject, Preflight>,
    pub(super) carried: bool,
    busy: bool,
}

impl Site {
    pub(super) fn new() -> Self {
        Self { preflights: BTreeMap::new(), carried: false, busy: false }
    }

    pub(super) fn cleared(mut self, npu: u32, at: Duration) -> Self {
        self.preflights.insert(Subject::Npu(npu), Preflight { at, ..Preflight::default() });
        self
    }

    pub(super) fn step(
        &self,
        relay: &mut Relay,
        now: Duration,
        heads: &[Head<'_>],
        stands: &[Stands<'_>],
    ) -> Step {
        relay.step(&World {
            now,
            heads: heads.to_vec(),
            passed: Vec::new(),
            stands: stands.to_vec(),
            carried: &|_| self.carried,
            preflights: &self.preflights,
            classified: true,
            busy: self.busy,
        })
    }
}

pub(super) fn has(ids: &[&str]) -> View {
    View::Has { ids: ids.iter().copied().map(str::to_owned).collect(), complete: true }
}

pub(super) fn ids(step: &Step) -> Vec<&str> {
    step.send.iter().map(|parcel| parcel.id.as_str()).collect()
}

#[test]
fn a_fault_is_sent_when_it_has_stood_and_its_jobs_can_dump() {
    let fault = episode(3, Level::SeparateNPU);
    let heads = [head(1, "id-1", Assertion::Occur, &fault)];
    let mut relay = Relay::new(Settings::default());
    let start = Duration::from_secs(100);
    let step = Site::new().step(&mut relay, start, &heads, &[]);
    assert_eq!((step.holds[&1], step.send.len(), step.preflight.len()), (Hold::Settling, 0, 0));
    // The jobs are looked at just before it is due.
    let lead = step.wake.expect("something is due later");
    assert_eq!(lead + Duration::from_secs(1), start + SETTLED);
    let step = Site::new().step(&mut relay, lead, &heads, &[]);
    assert!(step.preflight.contains(&Subject::Npu(3)));
    assert_eq!(step.wake, Some(start + SETTLED));
    let step = Site::new().cleared(3, lead).step(&mut relay, start + SETTLED, &heads, &[]);
    assert_eq!(ids(&step), ["id-1"]);
}

#[test]
fn what_ends_while_it_settles_is_never_sent() {
    let fault = episode(3, Level::SeparateNPU);
    let mut relay = Relay::new(Settings::default());
    let over = Head { over: Some(2), ..head(1, "id-1", Assertion::Occur, &fault) };
    let step = Site::new().step(&mut relay, Duration::ZERO, std::slice::from_ref(&over), &[]);
    assert_eq!((step.withdraw, step.send.len()), (vec![1, 2], 0));
    // What may have gone out can't be forgotten: its end is sent, and not once more its beginning.
    let step = Site::new().step(&mut relay, Duration::ZERO, &[Head { offered: true, ..over }], &[]);
    assert_eq!((step.withdraw, step.skip, step.send.len()), (vec![], vec![1], 0));
}

#[test]
fn what_the_device_plugin_tells_isnt_told_twice() {
    let fault = episode(3, Level::SeparateNPU);
    let heads = [head(1, "id-1", Assertion::Occur, &fault)];
    let mut relay = Relay::new(Settings::default());
    let mut site = Site::new().cleared(3, SETTLED);
    site.carried = true;
    site.step(&mut relay, Duration::ZERO, &heads, &[]);
    assert_eq!(site.step(&mut relay, SETTLED, &heads, &[]).holds[&1], Hold::Carried);
    // It doesn't tell it any more. That may be since it is over, so it has to stand for a while as our own.
    site.carried = false;
    let step = site.step(&mut relay, SETTLED, &heads, &[]);
    assert_eq!((step.send.len(), step.holds[&1]), (0, Hold::Settling));
    let site = Site::new().cleared(3, SETTLED * 2);
    assert_eq!(ids(&site.step(&mut relay, SETTLED * 2, &heads, &[])), ["id-1"]);
}

#[test]
fn what_would_end_ranks_and_save_nothing_waits() {
    let fault = episode(3, Level::RestartNPU);
    let heads = [head(1, "id-1", Assertion::Occur, &fault)];
    let mut relay = Relay::new(Settings::default());
    let mut site = Site::new().cleared(3, SETTLED);
    let objection = Objection { pod: None, why: Why::NoResetConfig("reset-config-bert".to_owned()) };
    site.preflights.get_mut(&Subject::Npu(3)).expect("there").objections.push(objection);
    site.step(&mut relay, Duration::ZERO, &heads, &[]);
    let step = site.step(&mut relay, SETTLED, &heads, &[]);
    assert_eq!((step.holds[&1], step.send.len()), (Hold::Objected, 0));
    // It is looked at again, and goes as soon as nothing is missing.
    let again = step.wake.expect("again");
    assert!(site.step(&mut relay, again, &heads, &[]).preflight.contains(&Subject::Npu(3)));
    let site = Site::new().cleared(3, again);
    assert_eq!(ids(&site.step(&mut relay, again, &heads, &[])), ["id-1"]);
}

#[test]
fn an_old_preflight_clears_nothing() {
    let fault = episode(3, Level::SeparateNPU);
    let heads = [head(1, "id-1", Assertion::Occur, &fault)];
    let mut relay = Relay::new(Settings::default());
    let site = Site::new().cleared(3, Duration::ZERO);
    site.step(&mut relay, Duration::ZERO, &heads, &[]);
    let step = site.step(&mut relay, SETTLED, &heads, &[]);
    assert_eq!((step.holds[&1], step.send.len()), (Hold::Preflight, 0));
    assert!(step.preflight.contains(&Subject::Npu(3)));
}

#[test]
fn what_ends_no_rank_needs_no_preflight_and_a_longer_time() {
    let fault = episode(3, Level::SubHealthFault);
    let heads = [head(1, "id-1", Assertion::Occur, &fault)];
    let mut relay = Relay::new(Settings::default());
    let step = Site::new().step(&mut relay, Duration::ZERO, &heads, &[]);
    assert_eq!(step.wake, Some(Duration::from_secs(30)));
    let step = Site::new().step(&mut relay, Duration::from_secs(30), &heads, &[]);
    assert_eq!((ids(&step), step.preflight.len()), (vec!["id-1"], 0));
}

#[test]
fn a_batch_has_a_hundred_and_one_is_under_way_at_a_time() {
    let fault = episode(3, Level::SubHealthFault);
    let names: Vec<String> = (0..130).map(|n| format!("id-{n:03}")).collect();
    let heads: Vec<Head<'_>> =
        (1..).zip(&names).map(|(seq, id)| head(seq, id, Assertion::Recover, &fault)).collect();
    let mut relay = Relay::new(Settings::default());
    let mut site = Site::new();
    let first = site.step(&mut relay, Duration::ZERO, &heads, &[]);
    assert_eq!((first.send.len(), first.send[0].id.as_str()), (100, "id-000"));
    site.busy = true;
    let step = site.step(&mut relay, Duration::ZERO, &heads, &[]);
    assert_eq!((step.send.len(), step.holds.len()), (0, 130));
    site.busy = false;
    relay.answered(&first.send, &Ok(()), Duration::ZERO, 0.5);
    // The first hundred wait for ClusterD to show that they are gone, the rest for their second.
    let step = site.step(&mut relay, Duration::from_millis(999), &heads, &[]);
    assert_eq!((step.send.len(), step.wake), (0, Some(Duration::from_secs(1))));
    assert_eq!(site.step(&mut relay, Duration::from_secs(1), &heads, &[]).send.len(), 30);
}

#[test]
fn a_bad_one_among_many_is_found_and_the_others_arrive() {
    let fault = episode(3, Level::SubHealthFault);
    let heads = [
        head(1, "good", Assertion::Recover, &fault),
        head(2, "bad", Assertion::Once, &fault),
        head(3, "fine", Assertion::Once, &fault),
    ];
    let mut relay = Relay::new(Settings::default());
    let (site, mut now) = (Site::new(), Duration::ZERO);
    let mut left = heads.to_vec();
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let step = site.step(&mut relay, now, &left, &[]);
        let bad = step.send.iter().any(|parcel| parcel.id == "bad");
        let answer = if bad { Err(SendError::Invalid("no valid fault".to_owned())) } else { Ok(()) };
        for verdict in relay.answered(&step.send, &answer, now, 0.5) {
            match verdict {
                Verdict::Accept(seq) => accepted.push(seq),
                Verdict::Refuse(seq, why) => refused.push((seq, why)),
                other => panic!("{other:?}"),
            }
        }
        left.retain(|head| !accepted.contains(&head.seq) && refused.iter().all(|(seq, _)| *seq != head.seq));
        now += Duration::from_secs(1);
    }
    assert_eq!(refused.len(), 1);
    assert!(refused[0].0 == 2 && refused[0].1.contains("no valid fault"), "{refused:?}");
    assert_eq!(accepted, [3]);
    let gone = has(&[]);
    assert_eq!(relay.confirm(&gone, &left, &[], now + SETTLED), [Verdict::Accept(1)]);
}

#[test]
fn nobody_is_asked_again_before_it_is_time() {
    let fault = episode(3, Level::SubHealthFault);
    let heads = [head(1, "id-1", Assertion::Recover, &fault)];
    let mut relay = Relay::new(Settings::default());
    let (site, mut now, mut asked) = (Site::new(), Duration::ZERO, 0);
    while now < Duration::from_hours(1) {
        let step = site.step(&mut relay, now, &heads, &[]);
        if step.send.is_empty() {
            let wake = step.wake.expect("later");
            assert!(wake > now);
            now = wake;
        } else {
            asked += 1;
            relay.answered(&step.send, &Err(SendError::TooMany("limiter".to_owned())), now, 0.0);
        }
    }
    assert!(asked < 70, "{asked} times in an hour");
    assert!(relay.trouble().is_some());
}

#[test]
fn what_an_earlier_process_heard_waits_for_a_source_to_say_it_again() {
    let fault = episode(3, Level::SeparateNPU);
    let old = Head { vouched: false, ..head(1, "id-1", Assertion::Occur, &fault) };
    let mut relay = Relay::new(Settings::default());
    let minute = Duration::from_mins(1);
    let site = Site::new().cleared(3, SETTLED);
    site.step(&mut relay, Duration::ZERO, std::slice::from_ref(&old), &[]);
    assert_eq!(site.step(&mut relay, SETTLED, std::slice::from_ref(&old), &[]).holds[&1], Hold::Settling);
    assert_eq!(ids(&site.step(&mut relay, SETTLED, &[Head { vouched: true, ..old.clone() }], &[])), ["id-1"]);
    // A source that stays silent takes nothing back.
    assert_eq!(ids(&Site::new().cleared(3, minute).step(&mut relay, minute, &[old], &[])), ["id-1"]);
}
