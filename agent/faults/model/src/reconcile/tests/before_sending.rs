//! What has to hold before a fault is sent, and batches.

use super::*;

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
fn fault_that_ends_ranks_waits_ten_seconds_for_the_first_observation_of_clusterd() {
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
    // It is removed when it ends, since ClusterD doesn't have it.
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

/// A lost device of a job that can dump is named once, when ClusterD has the fault and responds.
#[test]
fn lost_device_is_named_once_after_clusterd_accepted_the_fault() {
    const DROPPED: u32 = 0x40F8_4E00;
    let lost = |plan: &Plan| plan.lost.values().copied().collect::<Vec<Subject>>();
    let mut node = Node::new(Level::RestartNPU);
    node.report(&[DROPPED]);
    node.plan(Duration::ZERO);
    let plan = node.cleared(SETTLE);
    assert_eq!((assertions(&plan), lost(&plan)), (vec![Assertion::Occur], vec![]));
    node.complete(plan, Ok(()), SETTLE);
    assert_eq!(lost(&node.cleared(SETTLE)), [Subject::Npu(3)]);
    let id = node.id();
    node.observe(&[&id], seconds(20));
    assert!(lost(&node.cleared(seconds(20))).is_empty());
    node.reconciler.withdraw(&mut node.tracker, &id);
    assert!(lost(&node.cleared(seconds(21))).is_empty());
}

/// ClusterD may show the fault before the answer arrives.
#[test]
fn lost_device_is_named_when_clusterd_shows_the_fault() {
    let mut node = Node::new(Level::RestartNPU);
    node.report(&[0x40F8_4E00]);
    node.plan(Duration::ZERO);
    let plan = node.cleared(SETTLE);
    let id = node.id();
    node.observe(&[&id], SETTLE);
    node.complete(plan, Ok(()), SETTLE);
    assert_eq!(node.cleared(SETTLE).lost.len(), 1);
}

/// Where the device plugin reports the device, it still settles, and its jobs are checked.
#[test]
fn lost_device_that_the_device_plugin_reports_is_named_after_a_preflight() {
    const DROPPED: u32 = 0x40F8_4E00;
    let mut node = Node::new(Level::RestartNPU);
    node.is_plugin_reporting = true;
    node.report(&[DROPPED]);
    let plan = node.plan(Duration::ZERO);
    assert_eq!((plan.wake, plan.preflights.len()), (Some(SETTLE), 0));
    let plan = node.plan(SETTLE);
    assert_eq!((plan.preflights.len(), plan.lost.len()), (1, 0));
    node.preflight = Some(Preflight { at: SETTLE, objects_since: Some(SETTLE) });
    assert!(node.plan(SETTLE).lost.is_empty(), "nothing would be saved");
    let plan = node.cleared(seconds(8));
    assert_eq!((plan.batch.len(), plan.lost.len()), (0, 1));
    assert!(node.cleared(seconds(9)).lost.is_empty());
}

/// Any other fault, a fault of an earlier process and one that ClusterD doesn't answer name no lost device.
#[test]
fn device_that_may_live_is_not_named_lost() {
    const DROPPED: u32 = 0x40F8_4E00;
    let mut node = Node::sent(Level::RestartNPU, SETTLE);
    assert!(node.cleared(seconds(6)).lost.is_empty(), "an HBM fault");
    let off = Settings { fast_dump: false, ..Settings::default() };
    for settings in [off, Settings::default()] {
        let is_restored = settings.fast_dump;
        node = Node::with(Level::RestartNPU, settings);
        node.report(&[DROPPED]);
        if is_restored {
            let faults = node.tracker.faults().cloned().collect();
            node.tracker = FaultTracker::new("n", None);
            node.tracker.restore(faults, Vec::new());
            node.report(&[DROPPED]);
        }
        node.plan(Duration::ZERO);
        let plan = node.cleared(SETTLE);
        assert_eq!(assertions(&plan), [Assertion::Occur]);
        node.complete(plan, Ok(()), SETTLE);
        assert!(node.cleared(seconds(6)).lost.is_empty());
    }
    node = Node::new(Level::RestartNPU);
    node.report(&[DROPPED]);
    node.plan(Duration::ZERO);
    let plan = node.cleared(SETTLE);
    node.complete(plan, Err(BatchError::Unexpected("?".to_owned())), SETTLE);
    assert!(node.cleared(seconds(6)).lost.is_empty());
}
