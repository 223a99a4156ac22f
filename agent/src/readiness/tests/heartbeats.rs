//! How often a Node is written.

use super::*;

#[test]
fn flapping_is_damped() {
    let mut node = Node::healthy();
    for at in 1..3600 {
        node.done(at, &if at % 8 < 4 { pass() } else { fail() });
    }
    assert!(node.writes.len() < 40, "{}", node.writes.len());
    assert_eq!(node.status(), Some(Ready::False), "a flapping node isn't healthy");
    for at in 3600..4201 {
        node.done(at, &pass());
    }
    assert_eq!(node.status(), Some(Ready::True));
}

/// 24 hours of 4,000 nodes that start at the same time.
#[test]
fn heartbeats_are_few_and_spread() {
    const NODES: u32 = 4_000;
    const DAY: u64 = 24 * 3600;
    let mut per_minute = vec![0_u32; usize::try_from(DAY / 60).expect("small")];
    for number in 0..NODES {
        let mut reconciler =
            Reconciler::new(Settings::default(), format!("node-{number}"), Some("b".to_owned()));
        let mut observed = ObservedNode::default();
        let mut last = None;
        let mut writes = 0;
        let mut at = 0;
        while at < DAY {
            if let Some(write) =
                reconciler.reconcile(now(at), CheckState::Completed(&pass()), &observed).update
            {
                if let Some(last) = last {
                    assert!(at - last >= 300, "two writes within {} s", at - last);
                    assert!(at - last <= 660);
                    assert_eq!(write.cause, WriteCause::Heartbeat);
                }
                let minute = usize::try_from(at / 60).expect("small");
                per_minute[minute] += 1;
                last = Some(at);
                writes += 1;
                observed = ObservedNode {
                    condition: Some(write.condition),
                    label: Some(write.label.to_owned()),
                    boot_id: write.boot_id,
                    tainted: false,
                };
            }
            at += 60;
        }
        assert!(writes <= 1 + DAY / 300, "{writes}");
    }
    // A mean of 4,000 in 7.5 minutes is 533 a minute; after the first hour no minute has twice that.
    assert!(per_minute[60..].iter().all(|&writes| (200..1066).contains(&writes)), "{:?}", &per_minute[60..]);
}

#[test]
fn heartbeats_survive_restarts_and_clock_changes() {
    let mut node = Node::healthy();
    for at in 1..299 {
        if at % 10 == 0 {
            node.restart();
        }
        node.done(at, &pass());
    }
    assert_eq!(node.writes.len(), 1);
    // The wall clock falls back by a day.
    let observed = node.observed.clone();
    let mut reconciler = Reconciler::new(Settings::default(), "n", Some("boot".to_owned()));
    let behind = |at| Now { elapsed: Duration::from_secs(at), wall: now(0).wall - Duration::from_hours(24) };
    assert!(reconciler.reconcile(behind(0), CheckState::Completed(&pass()), &observed).update.is_none());
    assert!(reconciler.reconcile(behind(601), CheckState::Completed(&pass()), &observed).update.is_some());
}
