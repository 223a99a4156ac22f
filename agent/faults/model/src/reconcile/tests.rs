use super::*;
use crate::code::Code;
use crate::fault::{Classification, Handling};
use crate::level::Level;
use crate::source_update::{ActiveFault, Severity, SourceUpdate};
use crate::tracker::Context;

const SETTLE: Duration = Duration::from_secs(5);
const CODE: u32 = 0x80E0_1801;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A node whose NPUs report faults of one level, and its reconciler.
struct Node {
    tracker: FaultTracker,
    reconciler: Reconciler,
    level: Level,
    is_plugin_reporting: bool,
    preflight: Option<Preflight>,
    is_classified: bool,
}

impl Node {
    /// ClusterD was looked at, and has nothing.
    fn new(level: Level) -> Self {
        Self::with(level, Settings::default())
    }

    fn with(level: Level, settings: Settings) -> Self {
        let mut node = Self {
            tracker: FaultTracker::new("n", None),
            reconciler: Reconciler::new(settings, Duration::ZERO),
            level,
            is_plugin_reporting: false,
            preflight: None,
            is_classified: true,
        };
        node.observe(&[], Duration::ZERO);
        node
    }

    /// What NPU 3 reports.
    fn report(&mut self, codes: &[u32]) -> &mut Self {
        self.report_of(3, codes)
    }

    fn report_of(&mut self, npu: u32, codes: &[u32]) -> &mut Self {
        let level = self.level;
        let classify =
            move |_: &Code, _: Option<Severity>| Classification { level, reason: "test".to_owned() };
        let active = |&code| ActiveFault { code: Code::from(code), severity: None, name: None };
        let faults = codes.iter().map(active).collect();
        let update = SourceUpdate::Snapshot { subject: Subject::Npu(npu), faults, at: 1_784_000_000_000 };
        let context = Context { classify: &classify, devices: &[], now: 0, notices: false };
        self.tracker.apply("dcmi", &update, context);
        self
    }

    fn plan(&mut self, now: Duration) -> Plan {
        let Self { tracker, reconciler, is_plugin_reporting, preflight, is_classified, .. } = self;
        reconciler.reconcile(
            tracker,
            &Inputs {
                now,
                is_reported_by_device_plugin: &|_| *is_plugin_reporting,
                preflight: &|_| *preflight,
                is_classified: *is_classified,
            },
        )
    }

    /// With a preflight that has just been made and objects to nothing.
    fn cleared(&mut self, now: Duration) -> Plan {
        self.preflight = Some(Preflight { at: now, objects_since: None });
        self.plan(now)
    }

    fn complete(&mut self, plan: Plan, result: Result<(), BatchError>, now: Duration) -> Completed {
        self.reconciler.complete(&mut self.tracker, plan.batch, result, now, 0.5)
    }

    fn observe(&mut self, ids: &[&str], now: Duration) {
        let faults = ids.iter().map(|id| ((*id).to_owned(), Some(Handling::EndRanks))).collect();
        let observed = Observed { faults, is_complete: true };
        self.reconciler.observe(&mut self.tracker, &observed, now);
    }

    fn phase(&self) -> &Phase {
        let mut faults = self.tracker.faults();
        let fault = faults.next().expect("a fault");
        assert!(faults.next().is_none(), "one fault");
        &fault.phase
    }

    fn id(&self) -> String {
        self.tracker.faults().next().expect("a fault").id.clone()
    }

    /// A fault of NPU 3 that ClusterD has accepted at `now`.
    fn sent(level: Level, now: Duration) -> Self {
        let mut node = Self::new(level);
        node.report(&[CODE]);
        // It has been reported for long enough.
        node.plan(Duration::ZERO);
        let plan = node.cleared(now);
        assert_eq!(assertions(&plan), [Assertion::Occur]);
        node.complete(plan, Ok(()), now);
        assert_eq!(*node.phase(), Phase::Sent);
        node
    }
}

fn assertions(plan: &Plan) -> Vec<Assertion> {
    plan.batch.iter().map(|outbound| outbound.assertion).collect()
}

fn causes(plan: &Plan) -> Vec<Cause> {
    plan.batch.iter().map(|outbound| outbound.cause).collect()
}

fn invalid() -> Result<(), BatchError> {
    Err(BatchError::Invalid("no valid fault".to_owned()))
}

#[test]
fn fault_is_sent_when_it_has_settled_and_its_jobs_can_dump() {
    let mut node = Node::new(Level::SeparateNPU);
    let start = seconds(100);
    let plan = node.report(&[CODE]).plan(start);
    assert_eq!((node.phase(), plan.batch.len(), plan.preflights.len()), (&Phase::Settling, 0, 0));
    // The jobs are checked just before it is due.
    let lead = plan.wake.expect("due later");
    assert_eq!(lead + seconds(1), start + SETTLE);
    let plan = node.plan(lead);
    assert!(plan.preflights.contains(&Subject::Npu(3)));
    assert_eq!(plan.wake, Some(start + SETTLE));
    node.preflight = Some(Preflight { at: lead, objects_since: None });
    assert_eq!(assertions(&node.plan(start + SETTLE)), [Assertion::Occur]);
    assert_eq!(*node.phase(), Phase::Sent);
}

#[test]
fn fault_that_ends_while_it_settles_is_never_sent() {
    let mut node = Node::new(Level::SeparateNPU);
    node.report(&[CODE]).plan(Duration::ZERO);
    node.report(&[]);
    assert_eq!(node.cleared(SETTLE), Plan::default());
}

#[test]
fn end_of_a_fault_in_flight_goes_with_the_next_batch() {
    let mut node = Node::new(Level::SeparateNPU);
    node.report(&[CODE]).plan(Duration::ZERO);
    let plan = node.cleared(SETTLE);
    node.report(&[]);
    assert_eq!(*node.phase(), Phase::Ending);
    assert!(node.plan(SETTLE).batch.is_empty(), "one batch at a time");
    node.complete(
        plan,
        Err(BatchError::Unavailable { why: "no answer".to_owned(), retry_after: None }),
        SETTLE,
    );
    assert_eq!(assertions(&node.plan(seconds(10))), [Assertion::Recover]);
}

#[test]
fn fault_that_the_device_plugin_reports_is_not_sent_and_settles_again_after_that() {
    let mut node = Node::new(Level::SeparateNPU);
    node.is_plugin_reporting = true;
    node.report(&[CODE]).plan(Duration::ZERO);
    assert!(node.cleared(SETTLE).batch.is_empty());
    assert_eq!(*node.phase(), Phase::Blocked(BlockReason::ReportedByDevicePlugin));
    // The device plugin may have noticed its end first.
    node.is_plugin_reporting = false;
    assert!(node.cleared(SETTLE).batch.is_empty());
    assert_eq!(*node.phase(), Phase::Settling);
    assert_eq!(node.cleared(SETTLE * 2).batch.len(), 1);
}

#[test]
fn fault_that_would_save_nothing_is_held_until_it_would() {
    let mut node = Node::new(Level::RestartNPU);
    node.report(&[CODE]).plan(Duration::ZERO);
    node.preflight = Some(Preflight { at: SETTLE, objects_since: Some(SETTLE) });
    let plan = node.plan(SETTLE);
    assert_eq!((node.phase(), plan.batch.len()), (&Phase::Blocked(BlockReason::NothingSaved), 0));
    let again = plan.wake.expect("checked again");
    assert!(node.plan(again).preflights.contains(&Subject::Npu(3)));
    assert_eq!(node.cleared(again).batch.len(), 1);
}

#[test]
fn preflights_become_rare_while_something_is_missing() {
    let mut node = Node::new(Level::SeparateNPU);
    node.report(&[CODE]).plan(Duration::ZERO);
    let (mut now, mut checks) = (SETTLE, 0);
    while now < Duration::from_hours(1) {
        let plan = node.plan(now);
        if plan.preflights.is_empty() {
            now = plan.wake.expect("checked again");
        } else {
            checks += 1;
            node.preflight = Some(Preflight { at: now, objects_since: Some(SETTLE) });
        }
    }
    assert!((50..100).contains(&checks), "{checks}");
}

#[test]
fn old_preflight_clears_nothing() {
    let mut node = Node::new(Level::SeparateNPU);
    node.preflight = Some(Preflight { at: Duration::ZERO, objects_since: None });
    node.report(&[CODE]).plan(Duration::ZERO);
    let plan = node.plan(SETTLE);
    assert_eq!(*node.phase(), Phase::Blocked(BlockReason::Preflight));
    assert!(plan.preflights.contains(&Subject::Npu(3)));
}

#[test]
fn kill_waits_for_the_classification_of_the_cluster() {
    let mut node = Node::new(Level::SeparateNPU);
    node.is_classified = false;
    node.report(&[CODE]).plan(Duration::ZERO);
    assert!(node.cleared(SETTLE).batch.is_empty());
    node.is_classified = true;
    assert_eq!(node.cleared(SETTLE).batch.len(), 1);
}

#[test]
fn kill_waits_a_moment_for_the_first_look_at_clusterd() {
    let mut node = Node::new(Level::SeparateNPU);
    node.reconciler = Reconciler::new(Settings::default(), Duration::ZERO);
    node.report(&[CODE]).plan(Duration::ZERO);
    assert_eq!(node.cleared(SETTLE).wake, Some(seconds(10)));
    assert_eq!(node.cleared(seconds(10)).batch.len(), 1, "an API server that is down holds up nothing");
}

#[test]
fn sub_health_needs_no_preflight_and_settles_for_longer() {
    let mut node = Node::new(Level::SubHealthFault);
    assert_eq!(node.report(&[CODE]).plan(Duration::ZERO).wake, Some(seconds(30)));
    let plan = node.plan(seconds(30));
    assert_eq!((plan.batch.len(), plan.preflights.len()), (1, 0));
}

#[test]
fn fault_that_is_not_handled_is_sent_only_if_notices_are() {
    let mut node = Node::new(Level::NotHandleFault);
    assert!(node.report(&[CODE]).plan(SETTLE).batch.is_empty());
    assert_eq!(*node.phase(), Phase::Blocked(BlockReason::NotHandled));
    let mut node = Node::with(Level::NotHandleFault, Settings { notices: true, ..Settings::default() });
    assert_eq!(node.report(&[CODE]).plan(SETTLE).batch.len(), 1);
}

#[test]
fn batch_has_at_most_a_hundred_faults_and_kills_go_first() {
    let mut node = Node::new(Level::SubHealthFault);
    let codes: Vec<u32> = (0..130).collect();
    node.report(&codes).plan(Duration::ZERO);
    node.level = Level::SeparateNPU;
    node.report_of(4, &[CODE]).plan(Duration::ZERO);
    let now = seconds(30);
    let first = node.cleared(now);
    assert_eq!((first.batch.len(), first.batch[0].fault.subject), (100, Subject::Npu(4)));
    assert!(node.plan(now).batch.is_empty(), "one batch at a time");
    node.complete(first, Ok(()), now);
    let plan = node.plan(now + Duration::from_millis(999));
    assert_eq!((plan.batch.len(), plan.wake), (0, Some(now + seconds(1))));
    assert_eq!(node.plan(now + seconds(1)).batch.len(), 31);
}

#[test]
fn invalid_fault_is_found_and_the_others_arrive() {
    let mut node = Node::new(Level::SubHealthFault);
    node.report(&[1, 2, 3]).plan(Duration::ZERO);
    let (mut accepted, mut refused, mut now) = (Vec::new(), Vec::new(), seconds(30));
    for _ in 0..6 {
        let plan = node.plan(now);
        let is_invalid = plan.batch.iter().any(|outbound| outbound.fault.code == Code::from(2));
        let result = if is_invalid { invalid() } else { Ok(()) };
        let completed = node.complete(plan, result, now);
        accepted.extend(completed.accepted.into_iter().map(|outbound| outbound.fault.code.number()));
        refused.extend(completed.refused.into_iter().map(|(outbound, _)| outbound.fault.code.number()));
        now += seconds(1);
    }
    accepted.sort_unstable();
    assert_eq!((accepted, refused), (vec![1, 3], vec![2]));
    let refused = |fault: &&Fault| matches!(fault.phase, Phase::Blocked(BlockReason::Refused(_)));
    assert_eq!(node.tracker.faults().filter(refused).count(), 1);
    // It is forgotten when it ends, since ClusterD doesn't have it.
    node.report(&[1, 3]);
    assert_eq!(node.tracker.faults().count(), 2);
}

#[test]
fn clusterd_is_not_asked_again_before_the_backoff_ends() {
    let mut node = Node::new(Level::SubHealthFault);
    node.report(&[CODE]).plan(Duration::ZERO);
    let (mut now, mut batches) = (seconds(30), 0);
    while now < Duration::from_hours(1) {
        let plan = node.plan(now);
        if plan.batch.is_empty() {
            let wake = plan.wake.expect("due later");
            assert!(wake > now);
            now = wake;
        } else {
            batches += 1;
            node.complete(plan, Err(BatchError::Limited("limiter".to_owned())), now);
        }
    }
    assert!(batches < 70, "{batches} in an hour");
    assert!(node.reconciler.trouble().is_some());
}

/// The next process, with the state of `before`.
fn restarted(before: &Node) -> Node {
    let mut node = Node::new(before.level);
    let faults =
        before.tracker.faults().map(|fault| Fault { delivery: Delivery::default(), ..fault.clone() });
    node.tracker.restore(faults.collect(), Vec::new());
    node
}

#[test]
fn fault_of_an_earlier_process_waits_for_a_source_to_report_it_again() {
    let mut before = Node::new(Level::SeparateNPU);
    before.report(&[CODE]).plan(Duration::ZERO);
    let mut node = restarted(&before);
    node.plan(Duration::ZERO);
    assert!(node.cleared(SETTLE).batch.is_empty());
    assert_eq!(node.report(&[CODE]).cleared(SETTLE).batch.len(), 1);
    // A source that reports nothing ends nothing.
    let mut node = restarted(&before);
    node.plan(Duration::ZERO);
    assert_eq!(node.cleared(RESYNC_GRACE).batch.len(), 1);
}

#[test]
fn kill_of_an_earlier_process_is_not_sent_again_before_a_source_could_report_its_end() {
    let mut node = restarted(&Node::sent(Level::SeparateNPU, SETTLE));
    node.plan(Duration::ZERO);
    for (now, batches) in [(CONFIRM, 0), (seconds(50), 0), (RESYNC_GRACE, 1)] {
        node.observe(&[], now);
        assert_eq!(node.cleared(now).batch.len(), batches, "after {now:?}");
    }
}

#[test]
fn fault_of_a_disabled_source_is_not_sent() {
    let mut node = Node::new(Level::SeparateNPU);
    node.report(&[CODE]);
    let faults = node.tracker.faults().cloned().collect();
    node.tracker = FaultTracker::new("n", Some(vec!["devices"]));
    node.tracker.restore(faults, Vec::new());
    for minute in 0..10 {
        assert!(node.cleared(Duration::from_mins(minute)).batch.is_empty());
    }
    assert_eq!(*node.phase(), Phase::Blocked(BlockReason::SourceDisabled));
}

#[test]
fn end_is_done_when_clusterd_shows_the_fault_no_more() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    let id = node.id();
    node.observe(&[&id], seconds(7));
    assert_eq!(*node.phase(), Phase::Confirmed);
    node.report(&[]);
    let plan = node.plan(seconds(10));
    assert_eq!(assertions(&plan), [Assertion::Recover]);
    node.complete(plan, Ok(()), seconds(10));
    node.observe(&[&id], seconds(12));
    // ClusterD may hold the end back.
    node.observe(&[], seconds(12));
    assert_eq!(*node.phase(), Phase::Ending);
    assert!(node.plan(seconds(17)).batch.is_empty());
    // It was lost: it is sent again.
    let plan = node.plan(seconds(18));
    assert_eq!(causes(&plan), [Cause::Again]);
    node.complete(plan, Ok(()), seconds(18));
    node.observe(&[], seconds(24));
    assert_eq!(node.tracker.faults().count(), 0);
}

#[test]
fn next_fault_of_a_code_waits_until_the_previous_one_has_ended() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    node.report(&[]);
    node.report(&[CODE]);
    let plan = node.plan(seconds(10));
    assert_eq!(assertions(&plan), [Assertion::Recover]);
    node.complete(plan, Ok(()), seconds(20));
    assert!(node.cleared(seconds(20)).batch.is_empty());
    let blocked = node.tracker.active().next().expect("active");
    assert_eq!(blocked.phase, Phase::Blocked(BlockReason::PreviousEnding));
    node.observe(&[], seconds(26));
    assert_eq!(assertions(&node.cleared(seconds(26))), [Assertion::Occur]);
}

#[test]
fn answers_count_where_clusterd_cannot_be_observed() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    node.reconciler.observe(&mut node.tracker, &Observed::default(), seconds(6));
    assert_eq!(*node.phase(), Phase::Confirmed);
    node.report(&[]);
    let plan = node.plan(seconds(10));
    node.complete(plan, Ok(()), seconds(10));
    assert_eq!(node.tracker.faults().count(), 0);
}

#[test]
fn incomplete_observation_misses_nothing() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    let incomplete = Observed { is_complete: false, ..Observed::default() };
    node.reconciler.observe(&mut node.tracker, &incomplete, seconds(60));
    assert!(node.cleared(seconds(60)).batch.is_empty());
}

#[test]
fn fault_that_clusterd_does_not_show_is_sent_again_under_its_id() {
    let mut node = Node::sent(Level::SubHealthFault, seconds(30));
    let id = node.id();
    node.observe(&[], seconds(32));
    assert!(node.plan(seconds(32)).batch.is_empty(), "ClusterD needs a moment");
    let mut now = seconds(39);
    for round in 1..=3 {
        node.observe(&[], now);
        let plan = node.plan(now);
        assert_eq!(
            plan.batch.iter().map(|out| (out.cause, &out.fault.id)).collect::<Vec<_>>(),
            [(Cause::Again, &id)]
        );
        node.complete(plan, Ok(()), now);
        assert_eq!(node.reconciler.unconfirmed(&node.tracker).is_some(), round == 3);
        // Each time later.
        now += seconds(9 << round);
    }
    node.observe(&[&id], now);
    assert!(node.reconciler.unconfirmed(&node.tracker).is_none());
    assert_eq!(*node.phase(), Phase::Confirmed);
}

#[test]
fn lost_kill_is_sent_again_only_if_its_jobs_can_dump() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    let id = node.id();
    node.observe(&[&id], seconds(7));
    node.preflight = None;
    let now = seconds(20);
    node.observe(&[], now);
    let plan = node.plan(now);
    assert_eq!((plan.batch.len(), plan.preflights.contains(&Subject::Npu(3))), (0, true));
    assert_eq!(causes(&node.cleared(now)), [Cause::Again]);
}

#[test]
fn lost_kill_that_the_device_plugin_reported_settles_first() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    let now = seconds(20);
    node.observe(&[], now);
    node.is_plugin_reporting = true;
    assert!(node.cleared(now).batch.is_empty());
    node.is_plugin_reporting = false;
    assert!(node.cleared(now).batch.is_empty(), "it may have ended");
    assert_eq!(causes(&node.cleared(now + SETTLE)), [Cause::Again]);
}

#[test]
fn fault_is_withdrawn_after_its_jobs_ended_and_stays_withdrawn() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    let id = node.id();
    node.reconciler.withdraw(&mut node.tracker, &id);
    let plan = node.plan(seconds(20));
    assert_eq!((assertions(&plan), causes(&plan)), (vec![Assertion::Recover], vec![Cause::Withdrawal]));
    node.complete(plan, Ok(()), seconds(20));
    node.observe(&[], seconds(27));
    assert!(node.plan(seconds(100)).batch.is_empty());
    // ClusterD restarted with it.
    node.observe(&[&id], seconds(100));
    let plan = node.plan(seconds(100));
    assert_eq!(assertions(&plan), [Assertion::Recover]);
    node.complete(plan, Ok(()), seconds(100));
    node.observe(&[], seconds(110));
    // Nothing is left to send when it ends.
    node.report(&[]);
    assert_eq!(node.tracker.faults().count(), 0);
}

#[test]
fn unknown_fault_is_withdrawn_when_sources_had_time_to_report_it() {
    let mut node = Node::new(Level::SeparateNPU);
    node.reconciler = Reconciler::new(Settings::default(), Duration::ZERO);
    assert_eq!(node.reconciler.next_observation(&node.tracker), Some(Duration::ZERO));
    node.observe(&["n.npu3.1.1700000000000"], Duration::ZERO);
    let plan = node.plan(Duration::ZERO);
    assert_eq!((plan.batch.len(), plan.wake), (0, Some(RESYNC_GRACE)));
    let plan = node.plan(RESYNC_GRACE);
    assert_eq!((plan.batch[0].cause, plan.batch[0].fault.since), (Cause::Unknown, 1_700_000_000_000));
    node.complete(plan, Ok(()), RESYNC_GRACE);
    assert!(node.plan(RESYNC_GRACE + seconds(1)).batch.is_empty());
    assert!(node.reconciler.next_observation(&node.tracker).is_some(), "until it is gone");
}

#[test]
fn unknown_fault_that_a_source_reports_is_adopted_and_not_sent() {
    let mut node = Node::new(Level::SeparateNPU);
    node.report(&[CODE]).plan(Duration::ZERO);
    let id = "n.npu3.80E01801.1700000000000";
    node.observe(&[id], seconds(1));
    assert_eq!((node.id().as_str(), node.phase()), (id, &Phase::Confirmed));
    assert!(node.cleared(RESYNC_GRACE).batch.is_empty());
}

#[test]
fn refused_end_is_done_only_when_clusterd_shows_nothing() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    let id = node.id();
    node.report(&[]);
    let mut now = seconds(10);
    let plan = node.plan(now);
    assert_eq!(node.complete(plan, invalid(), now).refused.len(), 1);
    now += CONFIRM;
    node.reconciler.observe(&mut node.tracker, &Observed::default(), now);
    assert_eq!(*node.phase(), Phase::Ending, "what isn't observed doesn't prove that it ended");
    // It is sent again, ever more rarely.
    let (mut observations, mut batches) = (0, 0);
    while now < Duration::from_hours(1) {
        let plan = node.plan(now);
        if plan.batch.is_empty() {
            let observation = node.reconciler.next_observation(&node.tracker).expect("it is open");
            if observation <= now {
                observations += 1;
                node.observe(&[&id], now);
            }
            now = plan.wake.expect("later").min(observation.max(now + seconds(1)));
        } else {
            batches += 1;
            node.complete(plan, invalid(), now);
        }
    }
    assert!(observations < 120 && batches < 30, "{observations}, {batches}");
    node.observe(&[], now + Duration::from_mins(5));
    assert_eq!(node.tracker.faults().count(), 0);
}

#[test]
fn end_that_clusterd_ignores_holds_up_the_next_fault_only_for_a_while() {
    let mut node = Node::sent(Level::SeparateNPU, SETTLE);
    let id = node.id();
    node.report(&[]);
    let mut now = seconds(10);
    while node.tracker.faults().count() > 0 {
        node.observe(&[&id], now);
        let plan = node.plan(now);
        if !plan.batch.is_empty() {
            node.complete(plan, Ok(()), now);
        }
        now += seconds(10);
        assert!(now < Duration::from_hours(1));
    }
    let observation = node.reconciler.next_observation(&node.tracker).expect("it isn't certain");
    node.observe(&[&id], observation);
    assert_eq!(causes(&node.plan(observation.max(now))), [Cause::Unknown]);
}
