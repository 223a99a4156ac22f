use std::cell::{Cell, RefCell};
use std::future::pending;

use super::*;
use crate::rehearsal::{Report, fault};

/// A ClusterD by the paused clock.
#[derive(Default)]
struct Fake {
    sent: RefCell<Vec<(Assertion, String)>>,
    faults: RefCell<BTreeMap<String, (Instant, Option<Instant>)>>,
    /// The answers to the first batches.
    answers: RefCell<Vec<Result<(), SendError>>>,
    level: Option<&'static str>,
    is_deaf: bool,
    is_unreadable: bool,
    is_incomplete: bool,
    /// How long a batch takes.
    delay: Cell<Duration>,
}

impl Exchange for Fake {
    async fn send(&self, batch: &[PublicFault]) -> (Route, Result<(), SendError>) {
        sleep(self.delay.get()).await;
        let sent = batch.iter().map(|fault| (fault.assertion, fault.fault_id.clone()));
        self.sent.borrow_mut().extend(sent);
        let answer = self.answers.borrow_mut().pop().unwrap_or(Ok(()));
        if answer.is_ok() && !self.is_deaf {
            let mut faults = self.faults.borrow_mut();
            for fault in batch {
                let added = faults.entry(fault.fault_id.clone()).or_insert((Instant::now(), None));
                if fault.assertion == Assertion::Recover {
                    added.1 = Some(Instant::now().max(added.0 + Duration::from_secs(5)));
                }
            }
        }
        (Route::Grpc, answer)
    }

    async fn shown(&self) -> Result<Shown, String> {
        if self.is_unreadable {
            return Err("forbidden".to_owned());
        }
        let second_ago = Instant::now().checked_sub(Duration::from_secs(1));
        let is_shown = |(added, ended): &(Instant, Option<Instant>)| {
            second_ago.is_some_and(|at| *added <= at && ended.is_none_or(|ended| ended > at))
        };
        let faults = self.faults.borrow();
        let shown = faults.iter().filter(|(_, times)| is_shown(times));
        let levels = shown.map(|(id, _)| (id.clone(), self.level.map(str::to_owned))).collect();
        Ok(Shown { levels, is_complete: !self.is_incomplete })
    }
}

impl Fake {
    fn answers(answers: impl IntoIterator<Item = SendError>) -> Self {
        Self { answers: RefCell::new(answers.into_iter().map(Err).collect()), ..Self::default() }
    }

    async fn rehearse(&self, stop: impl Future<Output = ()>) -> Report {
        let mut log = Log::new("n", |_: &Step| {});
        let fault = fault("n", 31).expect("valid");
        run(self, &fault, stop, &mut log).await;
        log.finish()
    }

    fn assertions(&self) -> Vec<Assertion> {
        self.sent.borrow().iter().map(|(assertion, _)| *assertion).collect()
    }
}

fn steps(report: &Report) -> Vec<(StepName, Status)> {
    report.steps.iter().map(|step| (step.step, step.status)).collect()
}

fn message(report: &Report, name: StepName) -> &str {
    &report.steps.iter().find(|step| step.step == name).expect("the step").message
}

#[tokio::test(start_paused = true)]
async fn fault_is_sent_seen_withdrawn_and_gone() {
    let clusterd = Fake { level: Some(HARMLESS), ..Fake::default() };
    let report = clusterd.rehearse(pending()).await;
    let names =
        [StepName::Observe, StepName::Send, StepName::Appear, StepName::Withdraw, StepName::Disappear];
    assert_eq!(steps(&report), names.map(|name| (name, Status::Pass)));
    assert_eq!((report.status, report.transport), (Status::Pass, Some(Route::Grpc)));
    assert_eq!(clusterd.assertions(), [Assertion::Occur, Assertion::Recover]);
    let id = report.fault_id.expect("sent");
    assert!(clusterd.sent.borrow().iter().all(|(_, sent)| *sent == id));
}

#[tokio::test(start_paused = true)]
async fn level_on_which_clusterd_acts_fails_and_is_withdrawn() {
    let clusterd = Fake { level: Some("SeparateNPU"), ..Fake::default() };
    let report = clusterd.rehearse(pending()).await;
    assert_eq!(report.status, Status::Fail);
    assert!(message(&report, StepName::Appear).contains("SeparateNPU instead of NotHandleFault"));
    assert_eq!(steps(&report).last(), Some(&(StepName::Disappear, Status::Pass)));
}

#[tokio::test(start_paused = true)]
async fn refused_fault_needs_no_withdrawal() {
    let clusterd = Fake::answers([SendError::Invalid("there is no valid fault".to_owned())]);
    let report = clusterd.rehearse(pending()).await;
    assert_eq!(steps(&report).last(), Some(&(StepName::Send, Status::Fail)));
    assert_eq!(clusterd.assertions(), [Assertion::Occur]);

    let limited = (0..100).map(|_| SendError::TooMany("limiter work by resource failed".to_owned()));
    let started = Instant::now();
    let report = Fake::answers(limited).rehearse(pending()).await;
    assert_eq!(steps(&report).last(), Some(&(StepName::Send, Status::Fail)));
    assert!(message(&report, StepName::Send).contains("clusterd-config"));
    assert!(started.elapsed() <= SEND);
}

#[tokio::test(start_paused = true)]
async fn fault_without_an_answer_is_withdrawn() {
    let unavailable = || SendError::Unavailable("refused".to_owned());
    let clusterd = Fake::answers((0..1000).map(|_| unavailable()));
    let started = Instant::now();
    let report = clusterd.rehearse(pending()).await;
    assert_eq!(steps(&report)[1..], [(StepName::Send, Status::Fail), (StepName::Withdraw, Status::Fail)]);
    assert!(message(&report, StepName::Withdraw).contains("ten minutes"));
    assert!(started.elapsed() <= SEND + WITHDRAW);

    // The answers are popped from the end: ClusterD is busy first, and returns later.
    let clusterd = Fake::answers((0..20).map(|_| unavailable()));
    let report = clusterd.rehearse(pending()).await;
    assert_eq!(steps(&report).last(), Some(&(StepName::Disappear, Status::Pass)));
}

#[tokio::test(start_paused = true)]
async fn fault_that_is_not_shown_is_still_withdrawn() {
    let clusterd = Fake { is_deaf: true, ..Fake::default() };
    let started = Instant::now();
    let report = clusterd.rehearse(pending()).await;
    assert_eq!(steps(&report)[2].1, Status::Fail);
    assert!(message(&report, StepName::Appear).contains("clusterd-config"));
    assert_eq!(clusterd.assertions(), [Assertion::Occur, Assertion::Recover]);
    assert!(started.elapsed() < SHOW * 2);

    let report = Fake { is_incomplete: true, ..Fake::default() }.rehearse(pending()).await;
    assert_eq!((report.status, steps(&report)[2].1), (Status::Unknown, Status::Unknown));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_if_clusterd_can_not_be_observed() {
    let clusterd = Fake { is_unreadable: true, ..Fake::default() };
    let report = clusterd.rehearse(pending()).await;
    assert_eq!(steps(&report), [(StepName::Observe, Status::Unknown)]);
    assert_eq!((report.status, report.fault_id), (Status::Unknown, None));
    assert_eq!(clusterd.assertions(), []);
}

/// At any moment, also while a batch is on its way.
#[tokio::test(start_paused = true)]
async fn interrupted_rehearsal_withdraws_the_fault() {
    for millis in [0, 100, 250, 500, 900, 1500] {
        let clusterd = Fake::default();
        clusterd.delay.set(Duration::from_millis(200));
        let report = clusterd.rehearse(sleep(Duration::from_millis(millis))).await;
        assert_eq!(clusterd.assertions().last(), Some(&Assertion::Recover), "{millis}");
        assert_eq!(steps(&report).last(), Some(&(StepName::Disappear, Status::Pass)), "{millis}");
        let is_interrupted = report.steps.iter().any(|step| step.message == "interrupted");
        assert_eq!(is_interrupted, report.status == Status::Unknown, "{millis}");
        assert!(clusterd.faults.borrow().values().all(|(_, ended)| ended.is_some()), "{millis}");
    }
}

#[tokio::test(start_paused = true)]
async fn stale_fault_of_an_earlier_rehearsal_is_withdrawn_too() {
    let clusterd = Fake::default();
    let now = unix_millis();
    let (stale, young) = (
        swansong_fault_model::rehearsal_id("n", now - 700_000),
        swansong_fault_model::rehearsal_id("n", now),
    );
    let device = "n.npu3.1.1756000000000".to_owned();
    for id in [&stale, &young, &device] {
        clusterd.faults.borrow_mut().insert(id.clone(), (Instant::now(), None));
    }
    sleep(Duration::from_secs(2)).await;
    let report = clusterd.rehearse(pending()).await;
    let sent = clusterd.sent.borrow();
    let withdrawn = sent.iter().filter(|(assertion, _)| *assertion == Assertion::Recover);
    let own = report.fault_id.expect("sent");
    assert_eq!(withdrawn.map(|(_, id)| id).collect::<Vec<_>>(), [&own, &stale]);
}
