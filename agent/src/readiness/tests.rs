//! The reconciler with simulated clocks.

mod heartbeats;

use super::reconciler::label;
use super::*;
use crate::finding::Finding;

const BASE: Duration = Duration::from_hours(500_000);

fn check(name: CheckName, reason: Reason) -> Check {
    Check { name, finding: Finding::new(reason, format!("about {}", name.as_str())), advisory: false }
}

fn pass() -> Vec<Check> {
    vec![
        check(CheckName::DeviceManager, Reason::Present),
        check(CheckName::DriverLibs, Reason::LibrariesValid),
    ]
}

fn fail() -> Vec<Check> {
    vec![
        check(CheckName::DeviceManager, Reason::DeviceMissing),
        check(CheckName::DriverLibs, Reason::LibrariesValid),
    ]
}

fn unknown() -> Vec<Check> {
    vec![
        check(CheckName::DeviceManager, Reason::NotReadable),
        check(CheckName::DriverLibs, Reason::LibrariesValid),
    ]
}

fn now(seconds: u64) -> Now {
    let elapsed = Duration::from_secs(seconds);
    Now { elapsed, wall: SystemTime::UNIX_EPOCH + BASE + elapsed }
}

/// A Node that shows every write at once.
struct Node {
    reconciler: Reconciler,
    observed: ObservedNode,
    /// The sequence of statuses that the Node has shown.
    shown: Vec<Ready>,
    writes: Vec<(u64, WriteCause)>,
    events: Vec<NodeEvent>,
}

impl Node {
    fn new() -> Self {
        Self::of(ObservedNode::default(), Settings::default())
    }

    fn of(observed: ObservedNode, settings: Settings) -> Self {
        let reconciler = Reconciler::new(settings, "n", Some("boot".to_owned()));
        Self { reconciler, observed, shown: Vec::new(), writes: Vec::new(), events: Vec::new() }
    }

    /// Starts another process on the same node.
    fn restart(&mut self) {
        self.reconciler =
            Reconciler::new(self.reconciler.settings.clone(), "n", self.reconciler.boot_id.clone());
    }

    fn step(&mut self, at: u64, checks: CheckState<'_>) -> Actions {
        let actions = self.reconciler.reconcile(now(at), checks, &self.observed);
        if let Some(write) = actions.update.clone() {
            self.writes.push((at, write.cause));
            if self.shown.last() != Some(&write.condition.status) {
                self.shown.push(write.condition.status);
            }
            self.observed.condition = Some(write.condition);
            self.observed.label = Some(write.label.to_owned());
            self.observed.boot_id = write.boot_id;
        }
        self.observed.tainted = actions.taint.unwrap_or(self.observed.tainted);
        if actions.update.is_some() || actions.taint.is_some() {
            let again = self.reconciler.reconcile(now(at), checks, &self.observed);
            assert_eq!((again.update, again.taint, again.event), (None, None, None), "one write suffices");
        }
        self.events.extend(actions.event.clone());
        actions
    }

    fn done(&mut self, at: u64, checks: &[Check]) -> Actions {
        self.step(at, CheckState::Completed(checks))
    }

    fn status(&self) -> Option<Ready> {
        self.observed.condition.as_ref().map(|condition| condition.status)
    }

    fn healthy() -> Self {
        let mut node = Self::new();
        node.done(0, &pass());
        assert_eq!(node.status(), Some(Ready::True));
        node
    }
}

#[test]
fn the_first_round_is_reported_at_once() {
    let mut node = Node::new();
    assert_eq!(node.step(0, CheckState::Pending), Actions::default());
    let actions = node.done(1, &fail());
    let write = actions.update.expect("written");
    assert_eq!((write.condition.status, write.label), (Ready::False, "false"));
    assert_eq!(write.condition.reason, "DeviceMissing");
    assert_eq!(write.condition.message, "device-manager (DeviceMissing): about device-manager");
    assert_eq!(write.boot_id.as_deref(), Some("boot"));
    assert_eq!(node.events.len(), 1);

    let mut node = Node::new();
    node.done(0, &pass());
    assert_eq!(node.observed.condition.as_ref().map(|c| c.reason.as_str()), Some("ChecksPass"));
    assert_eq!(node.observed.label.as_deref(), Some("true"));
}

#[test]
fn a_hanging_first_round_is_unknown() {
    let mut node = Node::new();
    node.step(0, CheckState::Pending);
    node.step(29, CheckState::Hanging);
    assert_eq!(node.status(), None);
    node.step(30, CheckState::Hanging);
    assert_eq!(node.status(), Some(Ready::Unknown));
    assert_eq!(node.observed.condition.expect("reported").reason, "CheckHangs");
}

#[test]
fn a_restart_continues_from_the_observed_node() {
    for checks in [pass(), fail(), unknown()] {
        let mut node = Node::new();
        node.done(0, &checks);
        let before = node.observed.clone();
        let writes = node.writes.len();
        for at in 1..20 {
            node.restart();
            node.step(at * 3, CheckState::Pending);
            node.step(at * 3 + 1, CheckState::Pending);
            node.done(at * 3 + 2, &checks);
        }
        assert_eq!(node.observed, before);
        assert_eq!(node.writes.len(), writes);
        assert_eq!(node.shown.len(), 1);
        assert_eq!(node.events.len(), 1);
    }
}

#[test]
fn recovery_is_reported_after_its_delay() {
    let mut node = Node::healthy();
    node.done(10, &fail());
    assert!(node.done(10, &fail()).is_settling);
    node.done(11, &fail());
    assert_eq!(node.status(), Some(Ready::False));
    let failed = node.observed.condition.clone().expect("reported").transition;
    node.done(20, &pass());
    node.done(22, &pass());
    assert_eq!(node.status(), Some(Ready::False), "held");
    node.done(23, &pass());
    assert_eq!(node.status(), Some(Ready::True));
    let condition = node.observed.condition.clone().expect("reported");
    assert_eq!(condition.transition.duration_since(failed).ok(), Some(Duration::from_secs(12)));
    let last = node.events.last().expect("an Event");
    assert_eq!((last.warning, last.reason), (false, "DumpReady"));
    assert!(last.message.contains("recovered: device-manager"), "{}", last.message);
}

#[test]
fn recovery_names_the_failed_check() {
    let mut node = Node::healthy();
    for at in [10, 11] {
        node.done(at, &fail());
    }
    for at in [20, 23] {
        node.done(at, &pass());
    }
    let [.., failed, recovered] = &node.events[..] else { panic!("{:?}", node.events) };
    assert_eq!(failed.checks, [(CheckName::DeviceManager, Reason::DeviceMissing)]);
    assert_eq!(failed.checks, recovered.checks);
    assert!(failed.warning && !recovered.warning);
}

#[test]
fn unknown_is_not_recovery() {
    let mut node = Node::healthy();
    node.done(10, &fail());
    node.done(11, &fail());
    for at in 12..42 {
        node.done(at, &unknown());
        assert_eq!(node.status(), Some(Ready::False), "at {at}");
    }
    node.done(42, &unknown());
    assert_eq!(node.status(), Some(Ready::Unknown));
    for at in 43..200 {
        node.step(at, if at % 2 == 0 { CheckState::Hanging } else { CheckState::Pending });
        assert_eq!(node.status(), Some(Ready::Unknown), "at {at}");
    }
    assert_eq!(node.shown, [Ready::True, Ready::False, Ready::Unknown]);
}

#[test]
fn a_short_unknown_keeps_health() {
    let mut node = Node::healthy();
    for at in 1..30 {
        node.done(at, &unknown());
    }
    node.done(30, &pass());
    for at in 31..60 {
        node.done(at, &unknown());
    }
    assert_eq!(node.shown, [Ready::True]);
}

#[test]
fn failure_between_unknowns_is_failure() {
    let mut node = Node::healthy();
    for at in 1..6 {
        node.done(at, &if at % 2 == 0 { unknown() } else { fail() });
    }
    assert_eq!(node.status(), Some(Ready::False));
}

#[test]
fn another_boot_is_unknown_until_checked() {
    let mut node = Node::healthy();
    node.reconciler = Reconciler::new(Settings::default(), "n", Some("another".to_owned()));
    let actions = node.step(100, CheckState::Pending);
    let write = actions.update.expect("written");
    assert_eq!(
        (write.condition.status, write.condition.reason.as_str()),
        (Ready::Unknown, "NotCheckedSinceBoot")
    );
    assert_eq!(write.boot_id.as_deref(), Some("another"));
    node.restart();
    node.step(102, CheckState::Pending);
    assert_eq!(node.status(), Some(Ready::Unknown), "a restart does not make it known");
    node.done(103, &pass());
    node.done(106, &pass());
    assert_eq!(node.shown, [Ready::True, Ready::Unknown, Ready::True]);

    let mut node = Node::healthy();
    node.reconciler = Reconciler::new(Settings::default(), "n", None);
    node.step(100, CheckState::Pending);
    node.done(101, &pass());
    assert_eq!(node.shown, [Ready::True], "an unknown boot id changes nothing");
}

#[test]
fn a_failed_write_is_retried_until_the_node_shows_it() {
    let mut node = Node::healthy();
    node.done(10, &fail());
    for at in 11..100 {
        // The API server is down.
        let actions = node.reconciler.reconcile(now(at), CheckState::Completed(&fail()), &node.observed);
        let write = actions.update.unwrap_or_else(|| panic!("no retry at {at}"));
        assert_eq!((write.cause, write.condition.status), (WriteCause::Transition, Ready::False));
    }
    node.done(100, &fail());
    assert_eq!(node.status(), Some(Ready::False));
    assert_eq!(
        node.reconciler.reconcile(now(101), CheckState::Completed(&fail()), &node.observed).update,
        None
    );
}

#[test]
fn corrections_of_other_clients_are_limited_and_deferral_is_reported() {
    let mut node = Node::healthy();
    let (mut corrections, mut deferred) = (0, 0);
    for at in 1..3600 {
        node.observed.label = Some("false".to_owned());
        let actions = node.done(at, &pass());
        match (&actions.update, actions.deferred_for) {
            (Some(update), None) => {
                assert_eq!(update.cause, WriteCause::Correction);
                corrections += 1;
            }
            (None, Some(wait)) => {
                assert!(wait <= Duration::from_mins(2));
                deferred += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((4..=40).contains(&corrections), "{corrections}");
    assert_eq!(corrections + deferred, 3599);
}

#[test]
fn a_removed_condition_is_restored_with_a_new_time() {
    let mut node = Node::healthy();
    node.done(1, &pass());
    node.observed = ObservedNode::default();
    let write = node.done(60, &pass()).update.expect("written");
    assert_eq!(write.cause, WriteCause::Correction);
    assert_eq!(write.condition.transition, now(60).wall);
}

#[test]
fn further_problems_are_reported_and_volatile_numbers_are_not() {
    let mut node = Node::healthy();
    node.done(10, &fail());
    node.done(11, &fail());
    let mut both = fail();
    both[1] = check(CheckName::DriverLibs, Reason::NotAFile);
    let write = node.done(12, &both).update.expect("written");
    assert_eq!(write.cause, WriteCause::Details);
    assert!(write.condition.message.contains("; driver-libs (NotAFile): "), "{}", write.condition.message);
    assert_eq!(write.condition.transition, now(11).wall);
    assert_eq!(node.events.last().expect("an Event").checks.len(), 2);
    // The same check fails for other devices.
    both[0].finding = Finding::new(Reason::DeviceMissing, "two devices").about(["davinci3", "davinci4"]);
    let update = node.done(13, &both).update.expect("written");
    assert_eq!(update.cause, WriteCause::Details);
    for at in 14..300 {
        both[0].finding.message = format!("pid {at}");
        assert_eq!(node.done(at, &both).update, None, "at {at}");
    }
}

#[test]
fn the_taint_follows_failure_only() {
    let mut node = Node::of(ObservedNode::default(), Settings { taint: true, ..Settings::default() });
    node.done(0, &unknown());
    assert!(!node.observed.tainted, "unknown taints nothing");
    node.done(1, &fail());
    node.done(2, &fail());
    assert!(node.observed.tainted);
    for at in 3..100 {
        node.done(at, &unknown());
    }
    assert_eq!(node.status(), Some(Ready::Unknown));
    assert!(node.observed.tainted, "unknown is not recovery");
    node.done(100, &pass());
    node.done(103, &pass());
    assert!(!node.observed.tainted);

    let mut node = Node::of(ObservedNode { tainted: true, ..ObservedNode::default() }, Settings::default());
    node.done(0, &fail());
    assert!(!node.observed.tainted, "a taint from before is removed");
}

proptest::proptest! {
    /// For any sequence of checks and restarts: only passing checks make a node ready, the transition time changes only with
    /// the status, and label and condition agree.
    #[test]
    fn invariants_hold(steps in proptest::collection::vec((0_u8..6, 1_u64..40), 1..200)) {
        let mut node = Node::new();
        let mut at = 0;
        for (step, wait) in steps {
            at += wait;
            let before = node.observed.condition.clone();
            match step {
                0 | 1 => { node.done(at, &pass()); }
                2 => { node.done(at, &fail()); }
                3 => { node.done(at, &unknown()); }
                4 => { node.step(at, CheckState::Hanging); }
                _ => { node.restart(); node.step(at, CheckState::Pending); }
            }
            let after = node.observed.condition.clone();
            let status = |condition: &Option<Condition>| condition.as_ref().map(|c| c.status);
            let transition = |condition: &Option<Condition>| condition.as_ref().map(|c| c.transition);
            if status(&after) == status(&before) {
                proptest::prop_assert_eq!(transition(&after), transition(&before));
            } else {
                proptest::prop_assert_eq!(transition(&after), Some(now(at).wall));
                match status(&after) {
                    Some(Ready::True) => proptest::prop_assert!(step <= 1),
                    Some(Ready::False) => proptest::prop_assert_eq!(step, 2),
                    _ => {}
                }
            }
            let expected = status(&after).map(label);
            proptest::prop_assert_eq!(expected, node.observed.label.as_deref());
        }
    }
}
