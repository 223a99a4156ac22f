//! What is known of a device: what events told, and what it said when it was asked.

use std::collections::BTreeMap;
use std::time::Duration;

use swansong_fault_model::{ActiveFault, Assertion, Code, Severity};

use super::meaning::Fault;
use crate::ffi::CallError;
use crate::library::Health;
use crate::return_code::ReturnCode;

/// What MindCluster calls a card that has dropped off the bus. The driver tells no event of it
/// (`ascend-device-plugin/pkg/common/fault_code.go`).
const DROPPED: u32 = 0x40F8_4E00;

/// An event may come so long after what it tells can be seen by asking.
const LATE: Duration = Duration::from_secs(10);

/// What a device says.
pub(crate) type Answer = Result<(Health, Vec<u32>), CallError>;

/// What to make of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// All that stands.
    All(Vec<ActiveFault>),
    /// It can't be seen.
    Blind(String),
}

/// One device.
#[derive(Debug, Default)]
pub(crate) struct Known {
    standing: BTreeMap<Code, (Option<Severity>, Option<String>)>,
    /// Codes that were found by asking although no event told them, and when.
    untold: BTreeMap<Code, Duration>,
    /// Everything up to now is known, so that what is found next must have been told.
    complete: bool,
}

impl Known {
    /// An event told it.
    pub(crate) fn event(&mut self, fault: &Fault) {
        self.untold.remove(&fault.code);
        match fault.assertion {
            Assertion::Occur => {
                self.standing.insert(fault.code.clone(), (fault.severity, fault.name.clone()));
            }
            Assertion::Recover => {
                self.standing.remove(&fault.code);
            }
            Assertion::Once => {}
        }
    }

    /// Events may have been lost.
    pub(crate) fn may_have_missed(&mut self) {
        self.complete = false;
        self.untold.clear();
    }

    /// The device was asked.
    pub(crate) fn answered(&mut self, answer: Answer, subscribed: bool, now: Duration) -> Told {
        match answer {
            Ok((Health::Normal | Health::Ill(_), codes)) => self.has(&codes, subscribed, now),
            Ok((Health::Absent, _)) => {
                self.may_have_missed();
                Told::Blind("the driver says that it is absent or hasn't started".to_owned())
            }
            Err(error) if error.code() == Some(ReturnCode::NotReady) => {
                self.may_have_missed();
                // Nothing says that what stood before is over.
                let code = Code::from(DROPPED);
                let mut all: Vec<_> = self.all().filter(|fault| fault.code != code).collect();
                all.push(ActiveFault {
                    code,
                    severity: Some(Severity::Critical),
                    name: Some("the card has dropped off".to_owned()),
                });
                Told::All(all)
            }
            Err(error) => {
                self.may_have_missed();
                Told::Blind(error.to_string())
            }
        }
    }

    fn has(&mut self, codes: &[u32], subscribed: bool, now: Duration) -> Told {
        let mut before = std::mem::take(&mut self.standing);
        for code in codes.iter().copied().map(Code::from) {
            let known = before.remove(&code);
            if known.is_none() && subscribed && self.complete {
                self.untold.entry(code.clone()).or_insert(now);
            }
            self.standing.insert(code, known.unwrap_or_default());
        }
        self.complete = subscribed;
        Told::All(self.all().collect())
    }

    /// Whether all is well, as far as is known.
    pub(crate) fn is_well(&self) -> bool {
        self.standing.is_empty()
    }

    /// A fault that has been there for a while and that no event told: the driver tells none any more.
    pub(crate) fn untold(&self, now: Duration) -> Option<&Code> {
        self.untold.iter().find(|(_, since)| now.saturating_sub(**since) >= LATE).map(|(code, _)| code)
    }

    fn all(&self) -> impl Iterator<Item = ActiveFault> {
        self.standing.iter().map(|(code, (severity, name))| ActiveFault {
            code: code.clone(),
            severity: *severity,
            name: name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    const A: u32 = 0x80E0_1801;
    const B: u32 = 0x8107_8603;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fault(code: u32, assertion: Assertion) -> Fault {
        Fault {
            logic: 0,
            code: Code::from(code),
            severity: Some(Severity::Major),
            assertion,
            name: Some("HBM".to_owned()),
        }
    }

    fn has(codes: &[u32]) -> (Health, Vec<u32>) {
        (Health::Ill(2), codes.to_vec())
    }

    fn failed(number: i32) -> Answer {
        let code = ReturnCode::check(number).expect_err("a failure");
        Err(CallError::Failed { function: "dcmi_get_device_health", code })
    }

    fn codes(told: &Told) -> Vec<String> {
        match told {
            Told::All(all) => all.iter().map(|fault| fault.code.to_string()).collect(),
            Told::Blind(why) => panic!("blind: {why}"),
        }
    }

    #[test]
    fn what_events_told_of_a_fault_is_kept_while_it_stands() {
        let mut known = Known::default();
        known.event(&fault(A, Assertion::Occur));
        let Told::All(all) = known.answered(Ok(has(&[A, B])), true, s(0)) else { panic!("seen") };
        assert_eq!(all[0].severity, Some(Severity::Major));
        assert_eq!(all[0].name.as_deref(), Some("HBM"));
        assert_eq!((all[1].code.number(), all[1].severity), (u64::from(B), None));
        known.event(&fault(A, Assertion::Recover));
        known.event(&fault(0x8000_0000, Assertion::Once));
        assert_eq!(codes(&known.answered(Ok(has(&[B])), true, s(0))), ["81078603"]);
        assert!(!known.is_well());
        assert!(codes(&known.answered(Ok(has(&[])), true, s(0))).is_empty());
        assert!(known.is_well());
    }

    #[test]
    fn b80_a_dropped_card_keeps_what_stood() {
        let mut known = Known::default();
        known.event(&fault(A, Assertion::Occur));
        let told = known.answered(failed(-8012), true, s(0));
        assert_eq!(codes(&told), ["80E01801", "40F84E00"]);
        let Told::All(all) = told else { panic!("seen") };
        assert_eq!(all[1].severity, Some(Severity::Critical));
        assert!(codes(&known.answered(Ok(has(&[])), true, s(1))).is_empty());
    }

    #[test]
    fn b80_any_other_failure_is_blindness() {
        for number in (-8023..=-8001).chain([-8255, -99_998, 1]).filter(|number| *number != -8012) {
            let mut known = Known::default();
            known.event(&fault(A, Assertion::Occur));
            let told = known.answered(failed(number), true, s(0));
            let Told::Blind(why) = told else { panic!("{number}: {told:?}") };
            assert!(why.contains(&number.to_string()) && !why.contains("driver is missing"), "{why}");
            assert!(!known.is_well());
        }
        let absent = Known::default().answered(Ok((Health::Absent, Vec::new())), true, s(0));
        assert!(matches!(absent, Told::Blind(_)));
    }

    #[test]
    fn a_fault_that_nothing_told_says_that_the_driver_is_silent() {
        let mut known = Known::default();
        // What stands at the beginning was never told.
        known.answered(Ok(has(&[A])), true, s(0));
        assert_eq!(known.untold(s(100)), None);
        known.answered(Ok(has(&[A, B])), true, s(300));
        assert_eq!(known.untold(s(309)), None);
        assert_eq!(known.untold(s(310)), Some(&Code::from(B)));
        // The event was only late.
        known.event(&fault(B, Assertion::Occur));
        assert_eq!(known.untold(s(310)), None);
    }

    #[test]
    fn what_may_have_been_missed_says_nothing_of_the_driver() {
        for missed in [
            |known: &mut Known| known.may_have_missed(),
            |known: &mut Known| drop(known.answered(failed(-8012), true, s(1))),
            |known: &mut Known| drop(known.answered(failed(-8006), true, s(1))),
            |known: &mut Known| drop(known.answered(Ok(has(&[])), false, s(1))),
        ] {
            let mut known = Known::default();
            known.answered(Ok(has(&[])), true, s(0));
            missed(&mut known);
            known.answered(Ok(has(&[A])), true, s(300));
            assert_eq!(known.untold(s(900)), None);
        }
        let mut known = Known::default();
        known.answered(Ok(has(&[])), true, s(0));
        known.answered(Ok(has(&[A])), true, s(300));
        known.may_have_missed();
        assert_eq!(known.untold(s(900)), None);
    }

    /// What goes on at a device, and with what is told of it.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Happens(u32, Assertion),
        /// The oldest event arrives.
        Arrives,
        /// The oldest event is lost, which is noticed.
        Lost,
        Asked,
        Drops,
    }

    fn step() -> impl Strategy<Value = Step> {
        let assertion = prop_oneof![Just(Assertion::Occur), Just(Assertion::Recover), Just(Assertion::Once)];
        prop_oneof![
            4 => (1..4_u32, assertion).prop_map(|(code, assertion)| Step::Happens(code, assertion)),
            4 => Just(Step::Arrives),
            1 => Just(Step::Lost),
            2 => Just(Step::Asked),
            1 => Just(Step::Drops),
        ]
    }

    proptest! {
        /// However events are late or lost, whoever follows what is told ends with what stands, and no driver that
        /// speaks is taken for a silent one.
        #[test]
        fn whoever_follows_ends_with_what_stands(steps in prop::collection::vec(step(), 0..60)) {
            let (mut known, mut truth, mut view) = (Known::default(), BTreeSet::new(), BTreeSet::new());
            let mut under_way = VecDeque::new();
            let hear = |known: &mut Known, view: &mut BTreeSet<u64>, fault: &Fault| {
                known.event(fault);
                match fault.assertion {
                    Assertion::Occur => drop(view.insert(fault.code.number())),
                    Assertion::Recover => drop(view.remove(&fault.code.number())),
                    Assertion::Once => {}
                }
            };
            let ask = |known: &mut Known, view: &mut BTreeSet<u64>, answer: Answer| {
                if let Told::All(all) = known.answered(answer, true, s(0)) {
                    *view = all.iter().map(|fault| fault.code.number()).collect();
                }
            };
            let standing = |truth: &BTreeSet<u32>| has(&truth.iter().copied().collect::<Vec<_>>());
            for step in steps {
                match step {
                    Step::Happens(code, assertion) => {
                        match assertion {
                            Assertion::Occur => drop(truth.insert(code)),
                            Assertion::Recover => drop(truth.remove(&code)),
                            Assertion::Once => {}
                        }
                        under_way.push_back(fault(code, assertion));
                    }
                    Step::Arrives => {
                        if let Some(fault) = under_way.pop_front() {
                            hear(&mut known, &mut view, &fault);
                        }
                    }
                    Step::Lost => {
                        under_way.pop_front();
                        known.may_have_missed();
                    }
                    Step::Asked => ask(&mut known, &mut view, Ok(standing(&truth))),
                    Step::Drops => ask(&mut known, &mut view, failed(-8012)),
                }
            }
            for fault in under_way {
                hear(&mut known, &mut view, &fault);
            }
            prop_assert_eq!(known.untold(s(1000)), None);
            ask(&mut known, &mut view, Ok(standing(&truth)));
            prop_assert!(view.iter().eq(truth.iter().map(|code| u64::from(*code)).collect::<Vec<_>>().iter()));
        }
    }
}
