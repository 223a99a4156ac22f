//! Which device nodes existed, and what has to be reported about them.

use std::collections::{BTreeMap, BTreeSet};

use strum::VariantArray as _;
use swansong_fault_model::{ActiveFault, CARD_DROP, Code, DriverFault, Severity, SourceUpdate, Subject};

use super::inspect::{DeviceNode, Inspection, Presence};

/// The device nodes that existed, and what was reported last.
///
/// Only what existed can disappear: what a node never had is a matter of the checks.
#[derive(Debug, Default)]
pub(super) struct DeviceTracker {
    existed: BTreeSet<DeviceNode>,
    /// What is missing, and why it counts as missing.
    missing: BTreeMap<DeviceNode, String>,
    reported: BTreeMap<Subject, Reported>,
}

#[derive(Debug, PartialEq, Eq)]
enum Reported {
    Snapshot(Vec<DeviceNode>),
    Unavailable,
}

impl DeviceTracker {
    /// An earlier process reported this fault, so the device node existed.
    pub(super) fn restore(&mut self, subject: Subject, code: &Code) {
        let node = match subject {
            Subject::Npu(npu) => (*code == Code::from(CARD_DROP)).then_some(DeviceNode::Npu(npu)),
            Subject::Node => {
                let fault = DriverFault::VARIANTS.iter().find(|fault| fault.code() == *code);
                fault.copied().map(DeviceNode::Driver)
            }
        };
        self.existed.extend(node);
    }

    /// Has everything reported again.
    pub(super) fn report_again(&mut self) {
        self.reported.clear();
    }

    /// What has to be reported after an inspection at `at`, in milliseconds since 1970.
    pub(super) fn update(&mut self, inspection: Result<Inspection, String>, at: u64) -> Vec<SourceUpdate> {
        let inspection = match inspection {
            Ok(inspection) => inspection,
            Err(why) => {
                let subjects: BTreeSet<Subject> =
                    self.existed.iter().map(|node| node.subject()).chain([Subject::Node]).collect();
                return subjects.into_iter().filter_map(|subject| self.unavailable(subject, &why)).collect();
            }
        };
        self.compare(&inspection);
        let npus: Vec<DeviceNode> =
            self.existed.iter().copied().filter(|node| matches!(node, DeviceNode::Npu(_))).collect();
        let mut updates: Vec<SourceUpdate> = npus
            .into_iter()
            .filter_map(|node| match inspection.nodes.get(&node) {
                Some(Presence::Unknown(why)) => self.unavailable(node.subject(), why),
                _ => self.snapshot(node.subject(), at),
            })
            .collect();
        updates.extend(match driver_unavailable(&self.existed, &inspection) {
            Some(why) => self.unavailable(Subject::Node, &why),
            None => self.snapshot(Subject::Node, at),
        });
        updates
    }

    fn compare(&mut self, inspection: &Inspection) {
        for (node, presence) in &inspection.nodes {
            match presence {
                Presence::Present => {
                    self.existed.insert(*node);
                    self.missing.remove(node);
                }
                Presence::Missing(why) if self.existed.contains(node) => {
                    self.missing.insert(*node, why.clone());
                }
                Presence::Missing(_) | Presence::Unknown(_) => {}
            }
        }
        for node in &self.existed {
            if let DeviceNode::Npu(number) = node
                && !inspection.nodes.contains_key(node)
            {
                self.missing.insert(*node, format!("/dev/davinci{number} existed and is missing"));
            }
        }
    }

    fn unavailable(&mut self, subject: Subject, why: &str) -> Option<SourceUpdate> {
        let before = self.reported.insert(subject, Reported::Unavailable);
        let is_new = before != Some(Reported::Unavailable);
        is_new.then(|| SourceUpdate::Unavailable { subject, reason: why.to_owned() })
    }

    fn snapshot(&mut self, subject: Subject, at: u64) -> Option<SourceUpdate> {
        let missing: Vec<(DeviceNode, String)> = self
            .missing
            .iter()
            .filter(|(node, _)| node.subject() == subject)
            .map(|(node, why)| (*node, why.clone()))
            .collect();
        let report = Reported::Snapshot(missing.iter().map(|(node, _)| *node).collect());
        if self.reported.get(&subject) == Some(&report) {
            return None;
        }
        self.reported.insert(subject, report);
        let faults = missing.into_iter().map(|(node, why)| node.fault(why)).collect();
        Some(SourceUpdate::Snapshot { subject, faults, at })
    }
}

/// Why nothing can be reported about the driver as a whole: a required part of it has never existed for this process, so
/// that a fault of an earlier process may be active; or no part can be inspected.
fn driver_unavailable(existed: &BTreeSet<DeviceNode>, inspection: &Inspection) -> Option<String> {
    let never = |node: &&DeviceNode| !existed.contains(node);
    let missing =
        inspection.required.iter().filter(never).find_map(|node| match inspection.nodes.get(node)? {
            Presence::Missing(why) | Presence::Unknown(why) => Some(why.clone()),
            Presence::Present => None,
        });
    missing.or_else(|| {
        let mut driver = inspection.nodes.iter().filter(|(node, _)| matches!(node, DeviceNode::Driver(_)));
        let all_unknown = driver.clone().all(|(_, presence)| matches!(presence, Presence::Unknown(_)));
        driver.find_map(|(_, presence)| match presence {
            Presence::Unknown(why) if all_unknown => Some(why.clone()),
            _ => None,
        })
    })
}

impl DeviceNode {
    const fn subject(self) -> Subject {
        match self {
            Self::Npu(npu) => Subject::Npu(npu),
            Self::Driver(_) => Subject::Node,
        }
    }

    /// The fault that it is missing.
    fn fault(self, why: String) -> ActiveFault {
        let code = match self {
            Self::Npu(_) => Code::from(CARD_DROP),
            Self::Driver(fault) => fault.code(),
        };
        ActiveFault { code, severity: Some(Severity::Critical), name: Some(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANAGER: DeviceNode = DeviceNode::Driver(DriverFault::ManagerMissing);
    const HDC: DeviceNode = DeviceNode::Driver(DriverFault::HdcMissing);

    #[expect(clippy::unnecessary_wraps, reason = "the other half can't be inspected")]
    fn inspection(nodes: &[(DeviceNode, Presence)]) -> Result<Inspection, String> {
        Ok(Inspection { nodes: nodes.iter().cloned().collect(), required: vec![MANAGER] })
    }

    fn missing() -> Presence {
        Presence::Missing("gone".to_owned())
    }

    fn unknown() -> Presence {
        Presence::Unknown("hidden".to_owned())
    }

    /// A subject and its number of faults, or `None` if it is unavailable.
    fn short(updates: Vec<SourceUpdate>) -> Vec<(String, Option<usize>)> {
        let short = |update| match update {
            SourceUpdate::Snapshot { subject, faults, .. } => (subject.to_string(), Some(faults.len())),
            SourceUpdate::Unavailable { subject, .. } => (subject.to_string(), None),
            SourceUpdate::Event(event) => panic!("{event:?}"),
        };
        updates.into_iter().map(short).collect()
    }

    fn healthy(subject: &str) -> (String, Option<usize>) {
        (subject.to_owned(), Some(0))
    }

    #[test]
    fn device_node_that_existed_can_disappear_and_return() {
        let mut tracker = DeviceTracker::default();
        let both = inspection(&[(DeviceNode::Npu(0), Presence::Present), (MANAGER, Presence::Present)]);
        assert_eq!(short(tracker.update(both.clone(), 1)), [healthy("npu0"), healthy("node")]);
        assert_eq!(tracker.update(both.clone(), 2), [], "nothing has changed");
        let gone = tracker.update(inspection(&[(MANAGER, Presence::Present)]), 3);
        let [SourceUpdate::Snapshot { subject: Subject::Npu(0), faults, at: 3 }] = &gone[..] else {
            panic!("{gone:?}")
        };
        assert_eq!((faults[0].code.as_str(), faults[0].severity), ("40F84E00", Some(Severity::Critical)));
        assert_eq!(short(tracker.update(both, 4)), [healthy("npu0")]);
        let manager =
            tracker.update(inspection(&[(DeviceNode::Npu(0), Presence::Present), (MANAGER, missing())]), 5);
        let [SourceUpdate::Snapshot { subject: Subject::Node, faults, .. }] = &manager[..] else {
            panic!("{manager:?}")
        };
        assert_eq!(faults[0].code.as_str(), "120011101");
    }

    #[test]
    fn device_node_that_never_existed_is_no_fault() {
        let mut tracker = DeviceTracker::default();
        let seen = tracker.update(
            inspection(&[(DeviceNode::Npu(1), missing()), (MANAGER, Presence::Present), (HDC, missing())]),
            1,
        );
        assert_eq!(short(seen), [healthy("node")]);
    }

    #[test]
    fn what_cannot_be_inspected_is_not_healthy() {
        let mut tracker = DeviceTracker::default();
        let all =
            [(DeviceNode::Npu(0), Presence::Present), (MANAGER, Presence::Present), (HDC, Presence::Present)];
        tracker.update(inspection(&all), 1);
        tracker.update(inspection(&[(MANAGER, Presence::Present), (HDC, missing())]), 2);
        assert_eq!(
            short(tracker.update(Err("not mounted".to_owned()), 3)),
            [("node".to_owned(), None), ("npu0".to_owned(), None)]
        );
        assert_eq!(tracker.update(Err("not mounted".to_owned()), 4), [], "reported once");
        // A part of the driver can be inspected; the fault of the other part remains.
        let part =
            inspection(&[(DeviceNode::Npu(0), unknown()), (MANAGER, Presence::Present), (HDC, unknown())]);
        assert_eq!(short(tracker.update(part, 5)), [("node".to_owned(), Some(1))]);
        assert_eq!(short(tracker.update(inspection(&all), 6)), [healthy("npu0"), healthy("node")]);
        let none =
            inspection(&[(DeviceNode::Npu(0), Presence::Present), (MANAGER, unknown()), (HDC, unknown())]);
        assert_eq!(short(tracker.update(none, 7)), [("node".to_owned(), None)]);
    }

    #[test]
    fn fault_of_an_earlier_process_outlives_a_restart() {
        let mut tracker = DeviceTracker::default();
        let missing = inspection(&[(MANAGER, missing()), (HDC, Presence::Present)]);
        assert_eq!(short(tracker.update(missing.clone(), 1)), [("node".to_owned(), None)]);
        let mut tracker = DeviceTracker::default();
        tracker.restore(Subject::Node, &DriverFault::ManagerMissing.code());
        tracker.restore(Subject::Npu(2), &Code::from(CARD_DROP));
        tracker.restore(Subject::Npu(3), &Code::from(0x80E0_1801));
        assert_eq!(
            short(tracker.update(missing, 1)),
            [("npu2".to_owned(), Some(1)), ("node".to_owned(), Some(1))]
        );
        let back = inspection(&[
            (DeviceNode::Npu(2), Presence::Present),
            (MANAGER, Presence::Present),
            (HDC, Presence::Present),
        ]);
        assert_eq!(short(tracker.update(back, 2)), [healthy("npu2"), healthy("node")]);
    }

    #[test]
    fn everything_is_reported_again_on_request() {
        let mut tracker = DeviceTracker::default();
        let all = inspection(&[(DeviceNode::Npu(0), Presence::Present), (MANAGER, Presence::Present)]);
        tracker.update(all.clone(), 1);
        tracker.report_again();
        assert_eq!(short(tracker.update(all, 2)), [healthy("npu0"), healthy("node")]);
    }
}
