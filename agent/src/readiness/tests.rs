//! The core with clocks of our own.

use super::*;
use crate::report::Finding;

const BASE: Duration = Duration::from_hours(500_000);

fn check(name: CheckName, reason: Reason) -> Check {
    Check { name, finding: Finding::new(reason, format!("about {}", name.as_str())), advisory: false }
}

fn pass() -> Vec<Check> {
    vec![
        check(CheckName::DeviceManager, Reason::Present),
        check(CheckName::DriverLibs, Reason::LibrariesSound),
    ]
}

fn fail() -> Vec<Check> {
    vec![
        check(CheckName::DeviceManager, Reason::DeviceMissing),
        check(CheckName::DriverLibs, Reason::LibrariesSound),
    ]
}

fn unknown() -> Vec<Check> {
    vec![
        check(CheckName::DeviceManager, Reason::NotReadable),
        check(CheckName::DriverLibs, Reason::LibrariesSound),
    ]
}

fn now(seconds: u64) -> Now {
    let elapsed = Duration::from_secs(seconds);
    Now { elapsed, wall: SystemTime::UNIX_EPOCH + BASE + elapsed }
}

/// A node that takes whatever is written, at once.
struct Node {
    core: Readiness,
    told: Told,
    /// Every status the node has shown, each once in a row.
    shown: Vec<Ready>,
    writes: Vec<(u64, Cause)>,
    news: Vec<News>,
}

impl Node {
    fn new() -> Self {
        Self::of(Told::default(), Settings::default())
    }

    fn of(told: Told, settings: Settings) -> Self {
        let core = Readiness::new(settings, "n", Some("boot".to_owned()));
        Self { core, told, shown: Vec::new(), writes: Vec::new(), news: Vec::new() }
    }

    /// Another process on the same node.
    fn restart(&mut self) {
        self.core = Readiness::new(self.core.settings.clone(), "n", self.core.boot_id.clone());
    }

    fn step(&mut self, at: u64, looked: Looked<'_>) -> Step {
        let step = self.core.step(now(at), looked, &self.told);
        if let Some(write) = step.write.clone() {
            self.writes.push((at, write.cause));
            if self.shown.last() != Some(&write.condition.status) {
                self.shown.push(write.condition.status);
            }
            self.told.condition = Some(write.condition);
            self.told.label = Some(write.label.to_owned());
            self.told.boot_id = write.boot_id;
        }
        self.told.tainted = step.taint.unwrap_or(self.told.tainted);
        if step.write.is_some() || step.taint.is_some() {
            let again = self.core.step(now(at), looked, &self.told);
            assert_eq!((again.write, again.taint, again.news), (None, None, None), "one write is enough");
        }
        self.news.extend(step.news.clone());
        step
    }

    fn done(&mut self, at: u64, checks: &[Check]) -> Step {
        self.step(at, Looked::Done(checks))
    }

    fn status(&self) -> Option<Ready> {
        self.told.condition.as_ref().map(|condition| condition.status)
    }

    fn healthy() -> Self {
        let mut node = Self::new();
        node.done(0, &pass());
        assert_eq!(node.status(), Some(Ready::True));
        node
    }
}

#[test]
fn the_first_round_is_told_at_once_and_nothing_before() {
    let mut node = Node::new();
    assert_eq!(node.step(0, Looked::NotYet), Step::default());
    let step = node.done(1, &fail());
    let write = step.write.expect("written");
    assert_eq!((write.condition.status, write.label), (Ready::False, "false"));
    assert_eq!(write.condition.reason, "DeviceMissing");
    assert_eq!(write.condition.message, "device-manager (DeviceMissing): about device-manager");
    assert_eq!(write.boot_id.as_deref(), Some("boot"));
    assert_eq!(node.news.len(), 1);

    let mut node = Node::new();
    node.done(0, &pass());
    assert_eq!(node.told.condition.as_ref().map(|c| c.reason.as_str()), Some("ChecksPass"));
    assert_eq!(node.told.label.as_deref(), Some("true"));
}

#[test]
fn a_first_round_that_does_not_end_is_unknown() {
    let mut node = Node::new();
    node.step(0, Looked::NotYet);
    node.step(29, Looked::Hangs);
    assert_eq!(node.status(), None);
    node.step(30, Looked::Hangs);
    assert_eq!(node.status(), Some(Ready::Unknown));
    assert_eq!(node.told.condition.expect("told").reason, "CheckHangs");
}

#[test]
fn b65_a_restart_goes_on_from_what_the_node_shows() {
    for checks in [pass(), fail(), unknown()] {
        let mut node = Node::new();
        node.done(0, &checks);
        let before = node.told.clone();
        let writes = node.writes.len();
        for at in 1..20 {
            node.restart();
            node.step(at * 3, Looked::NotYet);
            node.step(at * 3 + 1, Looked::NotYet);
            node.done(at * 3 + 2, &checks);
        }
        assert_eq!(node.told, before);
        assert_eq!(node.writes.len(), writes);
        assert_eq!(node.shown.len(), 1);
        assert_eq!(node.news.len(), 1);
    }
}

#[test]
fn b66_what_is_over_is_told_after_the_hold() {
    let mut node = Node::healthy();
    node.done(10, &fail());
    assert!(node.done(10, &fail()).unsettled);
    node.done(11, &fail());
    assert_eq!(node.status(), Some(Ready::False));
    let failed = node.told.condition.clone().expect("told").transition;
    node.done(20, &pass());
    node.done(22, &pass());
    assert_eq!(node.status(), Some(Ready::False), "held");
    node.done(23, &pass());
    assert_eq!(node.status(), Some(Ready::True));
    let condition = node.told.condition.clone().expect("told");
    assert_eq!(condition.transition.duration_since(failed).ok(), Some(Duration::from_secs(12)));
    let last = node.news.last().expect("news");
    assert_eq!((last.warning, last.reason), (false, "DumpReady"));
    assert!(last.message.contains("recovered: device-manager"), "{}", last.message);
}

#[test]
fn b77_recovery_names_the_check_that_had_failed() {
    let mut node = Node::healthy();
    for at in [10, 11] {
        node.done(at, &fail());
    }
    for at in [20, 23] {
        node.done(at, &pass());
    }
    let [.., failed, recovered] = &node.news[..] else { panic!("{:?}", node.news) };
    assert_eq!(failed.checks, [(CheckName::DeviceManager, Reason::DeviceMissing)]);
    assert_eq!(failed.checks, recovered.checks);
    assert!(failed.warning && !recovered.warning);
}

#[test]
fn b73_unknown_is_not_recovery() {
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
        node.step(at, if at % 2 == 0 { Looked::Hangs } else { Looked::NotYet });
        assert_eq!(node.status(), Some(Ready::Unknown), "at {at}");
    }
    assert_eq!(node.shown, [Ready::True, Ready::False, Ready::Unknown]);
}

#[test]
fn a_short_unknown_keeps_health_too() {
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
    node.core = Readiness::new(Settings::default(), "n", Some("another".to_owned()));
    let step = node.step(100, Looked::NotYet);
    let write = step.write.expect("written");
    assert_eq!(
        (write.condition.status, write.condition.reason.as_str()),
        (Ready::Unknown, "NotCheckedSinceBoot")
    );
    assert_eq!(write.boot_id.as_deref(), Some("another"));
    node.restart();
    node.step(102, Looked::NotYet);
    assert_eq!(node.status(), Some(Ready::Unknown), "a restart does not make it known");
    node.done(103, &pass());
    node.done(106, &pass());
    assert_eq!(node.shown, [Ready::True, Ready::Unknown, Ready::True]);

    let mut node = Node::healthy();
    node.core = Readiness::new(Settings::default(), "n", None);
    node.step(100, Looked::NotYet);
    node.done(101, &pass());
    assert_eq!(node.shown, [Ready::True], "a kernel that tells nothing changes nothing");
}

#[test]
fn b88_a_write_that_failed_is_tried_until_the_node_shows_it() {
    let mut node = Node::healthy();
    node.done(10, &fail());
    for at in 11..100 {
        // The API server is down: nothing arrives.
        let step = node.core.step(now(at), Looked::Done(&fail()), &node.told);
        let write = step.write.unwrap_or_else(|| panic!("given up at {at}"));
        assert_eq!((write.cause, write.condition.status), (Cause::Transition, Ready::False));
    }
    node.done(100, &fail());
    assert_eq!(node.status(), Some(Ready::False));
    assert_eq!(node.core.step(now(101), Looked::Done(&fail()), &node.told).write, None);
}

#[test]
fn somebody_elses_hand_is_corrected_and_never_fought() {
    let mut node = Node::healthy();
    let mut corrections = 0;
    for at in 1..3600 {
        node.told.label = Some("false".to_owned());
        corrections +=
            u32::from(node.done(at, &pass()).write.is_some_and(|write| write.cause == Cause::Correction));
    }
    assert!((4..=40).contains(&corrections), "{corrections}");
}

#[test]
fn a_removed_condition_comes_back_with_a_new_time() {
    let mut node = Node::healthy();
    node.done(1, &pass());
    node.told = Told::default();
    let write = node.done(60, &pass()).write.expect("written");
    assert_eq!(write.cause, Cause::Correction);
    assert_eq!(write.condition.transition, now(60).wall);
}

#[test]
fn further_failures_are_told_and_numbers_that_change_are_not() {
    let mut node = Node::healthy();
    node.done(10, &fail());
    node.done(11, &fail());
    let mut both = fail();
    both[1] = check(CheckName::DriverLibs, Reason::NotAFile);
    let write = node.done(12, &both).write.expect("written");
    assert_eq!(write.cause, Cause::Details);
    assert!(write.condition.message.contains("; driver-libs (NotAFile): "), "{}", write.condition.message);
    assert_eq!(write.condition.transition, now(11).wall);
    assert_eq!(node.news.last().expect("news").checks.len(), 2);
    for at in 13..300 {
        both[0].finding.message = format!("pid {at}");
        assert_eq!(node.done(at, &both).write, None, "at {at}");
    }
}

#[test]
fn the_taint_follows_failure_only() {
    let mut node = Node::of(Told::default(), Settings { taint: true, ..Settings::default() });
    node.done(0, &unknown());
    assert!(!node.told.tainted, "unknown taints nothing");
    node.done(1, &fail());
    node.done(2, &fail());
    assert!(node.told.tainted);
    for at in 3..100 {
        node.done(at, &unknown());
    }
    assert_eq!(node.status(), Some(Ready::Unknown));
    assert!(node.told.tainted, "unknown is no recovery");
    node.done(100, &pass());
    node.done(103, &pass());
    assert!(!node.told.tainted);

    let mut node = Node::of(Told { tainted: true, ..Told::default() }, Settings::default());
    node.done(0, &fail());
    assert!(!node.told.tainted, "left from when it was switched on");
}

#[test]
fn flapping_is_damped() {
    let mut node = Node::healthy();
    for at in 1..3600 {
        node.done(at, &if at % 8 < 4 { pass() } else { fail() });
    }
    assert!(node.writes.len() < 40, "{}", node.writes.len());
    assert_eq!(node.status(), Some(Ready::False), "what comes and goes isn't healthy");
    for at in 3600..4201 {
        node.done(at, &pass());
    }
    assert_eq!(node.status(), Some(Ready::True));
}

/// B67: 24 hours of 4,000 nodes that all start at the same moment.
#[test]
fn b67_heartbeats_are_few_and_spread() {
    const NODES: u32 = 4_000;
    const DAY: u64 = 24 * 3600;
    let mut per_minute = vec![0_u32; usize::try_from(DAY / 60).expect("small")];
    for number in 0..NODES {
        let mut core = Readiness::new(Settings::default(), format!("node-{number}"), Some("b".to_owned()));
        let mut told = Told::default();
        let mut last = None;
        let mut writes = 0;
        let mut at = 0;
        while at < DAY {
            if let Some(write) = core.step(now(at), Looked::Done(&pass()), &told).write {
                if let Some(last) = last {
                    assert!(at - last >= 300, "two writes within {} s", at - last);
                    assert!(at - last <= 660);
                    assert_eq!(write.cause, Cause::Heartbeat);
                }
                let minute = usize::try_from(at / 60).expect("small");
                per_minute[minute] += 1;
                last = Some(at);
                writes += 1;
                told = Told {
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
fn a_restart_does_not_hurry_the_heartbeat_and_clocks_that_jump_do_not_stop_it() {
    let mut node = Node::healthy();
    for at in 1..299 {
        if at % 10 == 0 {
            node.restart();
        }
        node.done(at, &pass());
    }
    assert_eq!(node.writes.len(), 1);
    // The wall clock falls back by a day.
    let told = node.told.clone();
    let mut core = Readiness::new(Settings::default(), "n", Some("boot".to_owned()));
    let behind = |at| Now { elapsed: Duration::from_secs(at), wall: now(0).wall - Duration::from_hours(24) };
    assert!(core.step(behind(0), Looked::Done(&pass()), &told).write.is_none());
    assert!(core.step(behind(601), Looked::Done(&pass()), &told).write.is_some());
}

#[test]
fn every_standing_is_described() {
    for standing in Standing::ALL {
        assert!(standing.description().ends_with('.'), "{standing:?}");
    }
}

proptest::proptest! {
    /// Whatever is seen in whatever order, over restarts: nothing is called healthy that wasn't just seen to be, the
    /// transition time changes with the status only, and label and condition say the same.
    #[test]
    fn laws(looks in proptest::collection::vec((0_u8..6, 1_u64..40), 1..200)) {
        let mut node = Node::new();
        let mut at = 0;
        for (look, wait) in looks {
            at += wait;
            let before = node.told.condition.clone();
            match look {
                0 | 1 => { node.done(at, &pass()); }
                2 => { node.done(at, &fail()); }
                3 => { node.done(at, &unknown()); }
                4 => { node.step(at, Looked::Hangs); }
                _ => { node.restart(); node.step(at, Looked::NotYet); }
            }
            let after = node.told.condition.clone();
            let status = |condition: &Option<Condition>| condition.as_ref().map(|c| c.status);
            let transition = |condition: &Option<Condition>| condition.as_ref().map(|c| c.transition);
            if status(&after) == status(&before) {
                proptest::prop_assert_eq!(transition(&after), transition(&before));
            } else {
                proptest::prop_assert_eq!(transition(&after), Some(now(at).wall));
                match status(&after) {
                    Some(Ready::True) => proptest::prop_assert!(look <= 1),
                    Some(Ready::False) => proptest::prop_assert_eq!(look, 2),
                    _ => {}
                }
            }
            let told = status(&after).map(label);
            proptest::prop_assert_eq!(told, node.told.label.as_deref());
        }
    }
}
