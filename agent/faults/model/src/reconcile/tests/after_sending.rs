//! What ClusterD shows, compared with what it should show.

use super::*;

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
    assert!(node.plan(seconds(32)).batch.is_empty(), "ClusterD's ConfigMap may be late");
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
fn fault_of_a_rehearsal_is_withdrawn_only_when_it_is_stale() {
    let started = Duration::from_secs(1_756_000_000);
    let id = crate::rehearsal_id("n", 1_756_000_000_000);
    let mut node = Node::new(Level::SeparateNPU);
    node.report(&[CODE]).observe(&[&id], started + seconds(1));
    assert_ne!(node.id(), id, "it isn't adopted");
    let plan = node.report(&[]).plan(started + seconds(2));
    assert_eq!(plan.batch, []);
    let stale = plan.wake.expect("it wakes for it");
    assert_eq!(node.plan(stale.saturating_sub(seconds(1))).batch, []);
    assert!(node.reconciler.next_observation(&node.tracker).expect("it is observed") < stale);
    let plan = node.plan(stale);
    assert_eq!((causes(&plan), &plan.batch[0].fault.id), (vec![Cause::Unknown], &id));

    let mut node = Node::new(Level::SeparateNPU);
    node.observe(&[&id], started);
    node.observe(&[], started + seconds(8));
    assert_eq!(node.plan(stale).batch, [], "the rehearsal has withdrawn it");
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
    // It is sent again with growing intervals.
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
