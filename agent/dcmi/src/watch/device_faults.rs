//! The faults of a device, tracked from events and polls.

use std::collections::BTreeMap;
use std::time::Duration;

use swansong_fault_model::{ActiveFault, Assertion, CARD_DROP, Code, Severity};

use super::driver_event::Fault;
use crate::ffi::CallError;
use crate::library::Health;
use crate::return_code::ReturnCode;

/// The longest delay between a fault that a poll reports and its event.
const MAX_EVENT_DELAY: Duration = Duration::from_secs(10);

/// The response of a device to a poll.
pub(crate) type PollResponse = Result<(Health, Vec<u32>), CallError>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PollResult {
    Snapshot(Vec<ActiveFault>),
    /// The faults can't be read, and why.
    Unavailable(String),
}

#[derive(Debug, Default)]
pub(crate) struct DeviceFaults {
    active: BTreeMap<Code, (Option<Severity>, Option<String>)>,
    /// Codes that a poll found without an event, and when.
    without_event: BTreeMap<Code, Duration>,
    /// Whether no event can have been missed since the last poll.
    complete: bool,
}

impl DeviceFaults {
    pub(crate) fn apply_event(&mut self, fault: &Fault) {
        self.without_event.remove(&fault.code);
        match fault.assertion {
            Assertion::Occur => {
                self.active.insert(fault.code.clone(), (fault.severity, fault.name.clone()));
            }
            Assertion::Recover => {
                self.active.remove(&fault.code);
            }
            Assertion::Once => {}
        }
    }

    /// Records that events may have been lost.
    pub(crate) fn mark_incomplete(&mut self) {
        self.complete = false;
        self.without_event.clear();
    }

    /// Applies the response to a poll.
    pub(crate) fn apply_poll(
        &mut self,
        response: PollResponse,
        subscribed: bool,
        now: Duration,
    ) -> PollResult {
        match response {
            Ok((Health::Normal | Health::Unhealthy(_), codes)) => self.apply_codes(&codes, subscribed, now),
            Ok((Health::Absent, _)) => {
                self.mark_incomplete();
                PollResult::Unavailable("the driver reports that it is absent or hasn't started".to_owned())
            }
            Err(error) if error.code() == Some(ReturnCode::NOT_READY) => {
                self.mark_incomplete();
                // The other faults may still be active.
                let code = Code::from(CARD_DROP);
                let mut all: Vec<_> = self.snapshot().filter(|fault| fault.code != code).collect();
                all.push(ActiveFault {
                    code,
                    severity: Some(Severity::Critical),
                    name: Some("the card has dropped off".to_owned()),
                });
                PollResult::Snapshot(all)
            }
            Err(error) => {
                self.mark_incomplete();
                PollResult::Unavailable(error.to_string())
            }
        }
    }

    fn apply_codes(&mut self, codes: &[u32], subscribed: bool, now: Duration) -> PollResult {
        let mut before = std::mem::take(&mut self.active);
        for code in codes.iter().copied().map(Code::from) {
            let known = before.remove(&code);
            if known.is_none() && subscribed && self.complete {
                self.without_event.entry(code.clone()).or_insert(now);
            }
            self.active.insert(code, known.unwrap_or_default());
        }
        self.complete = subscribed;
        PollResult::Snapshot(self.snapshot().collect())
    }

    /// Whether no fault is active.
    pub(crate) fn is_healthy(&self) -> bool {
        self.active.is_empty()
    }

    /// A fault whose event is overdue: the driver no longer sends events.
    pub(crate) fn overdue_event(&self, now: Duration) -> Option<&Code> {
        self.without_event
            .iter()
            .find(|(_, since)| now.saturating_sub(**since) >= MAX_EVENT_DELAY)
            .map(|(code, _)| code)
    }

    fn snapshot(&self) -> impl Iterator<Item = ActiveFault> {
        self.active.iter().map(|(code, (severity, name))| ActiveFault {
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
        (Health::Unhealthy(2), codes.to_vec())
    }

    fn failed(number: i32) -> PollResponse {
        let code = ReturnCode::check(number).expect_err("a failure");
        Err(CallError::Failed { function: "dcmi_get_device_health", code })
    }

    fn codes(result: &PollResult) -> Vec<String> {
        match result {
            PollResult::Snapshot(all) => all.iter().map(|fault| fault.code.to_string()).collect(),
            PollResult::Unavailable(why) => panic!("unavailable: {why}"),
        }
    }

    #[test]
    fn keeps_severity_and_name_of_events_while_a_fault_is_active() {
        let mut faults = DeviceFaults::default();
        faults.apply_event(&fault(A, Assertion::Occur));
        let PollResult::Snapshot(all) = faults.apply_poll(Ok(has(&[A, B])), true, s(0)) else {
            panic!("unavailable")
        };
        assert_eq!(all[0].severity, Some(Severity::Major));
        assert_eq!(all[0].name.as_deref(), Some("HBM"));
        assert_eq!((all[1].code.number(), all[1].severity), (u64::from(B), None));
        faults.apply_event(&fault(A, Assertion::Recover));
        faults.apply_event(&fault(0x8000_0000, Assertion::Once));
        assert_eq!(codes(&faults.apply_poll(Ok(has(&[B])), true, s(0))), ["81078603"]);
        assert!(!faults.is_healthy());
        assert!(codes(&faults.apply_poll(Ok(has(&[])), true, s(0))).is_empty());
        assert!(faults.is_healthy());
    }

    #[test]
    fn dropped_card_keeps_its_other_faults() {
        let mut faults = DeviceFaults::default();
        faults.apply_event(&fault(A, Assertion::Occur));
        let result = faults.apply_poll(failed(-8012), true, s(0));
        assert_eq!(codes(&result), ["80E01801", "40F84E00"]);
        let PollResult::Snapshot(all) = result else { panic!("unavailable") };
        assert_eq!(all[1].severity, Some(Severity::Critical));
        assert!(codes(&faults.apply_poll(Ok(has(&[])), true, s(1))).is_empty());
    }

    #[test]
    fn any_other_failure_makes_the_device_unavailable() {
        for number in (-8023..=-8001).chain([-8255, -99_998, 1]).filter(|number| *number != -8012) {
            let mut faults = DeviceFaults::default();
            faults.apply_event(&fault(A, Assertion::Occur));
            let result = faults.apply_poll(failed(number), true, s(0));
            let PollResult::Unavailable(why) = result else { panic!("{number}: {result:?}") };
            assert!(why.contains(&number.to_string()) && !why.contains("driver is missing"), "{why}");
            assert!(!faults.is_healthy());
        }
        let absent = DeviceFaults::default().apply_poll(Ok((Health::Absent, Vec::new())), true, s(0));
        assert!(matches!(absent, PollResult::Unavailable(_)));
    }

    #[test]
    fn fault_without_event_shows_a_silent_subscription() {
        let mut faults = DeviceFaults::default();
        // Faults that are active at the start have no event.
        faults.apply_poll(Ok(has(&[A])), true, s(0));
        assert_eq!(faults.overdue_event(s(100)), None);
        faults.apply_poll(Ok(has(&[A, B])), true, s(300));
        assert_eq!(faults.overdue_event(s(309)), None);
        assert_eq!(faults.overdue_event(s(310)), Some(&Code::from(B)));
        // The event was only delayed.
        faults.apply_event(&fault(B, Assertion::Occur));
        assert_eq!(faults.overdue_event(s(310)), None);
    }

    #[test]
    fn missed_events_are_not_taken_for_a_silent_subscription() {
        for miss in [
            |faults: &mut DeviceFaults| faults.mark_incomplete(),
            |faults: &mut DeviceFaults| drop(faults.apply_poll(failed(-8012), true, s(1))),
            |faults: &mut DeviceFaults| drop(faults.apply_poll(failed(-8006), true, s(1))),
            |faults: &mut DeviceFaults| drop(faults.apply_poll(Ok(has(&[])), false, s(1))),
        ] {
            let mut faults = DeviceFaults::default();
            faults.apply_poll(Ok(has(&[])), true, s(0));
            miss(&mut faults);
            faults.apply_poll(Ok(has(&[A])), true, s(300));
            assert_eq!(faults.overdue_event(s(900)), None);
        }
        let mut faults = DeviceFaults::default();
        faults.apply_poll(Ok(has(&[])), true, s(0));
        faults.apply_poll(Ok(has(&[A])), true, s(300));
        faults.mark_incomplete();
        assert_eq!(faults.overdue_event(s(900)), None);
    }

    /// A change at the device or of its events.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Happens(u32, Assertion),
        /// The oldest event is received.
        Received,
        /// The oldest event is lost, which is detected.
        Lost,
        Polled,
        Drops,
    }

    fn step() -> impl Strategy<Value = Step> {
        let assertion = prop_oneof![Just(Assertion::Occur), Just(Assertion::Recover), Just(Assertion::Once)];
        prop_oneof![
            4 => (1..4_u32, assertion).prop_map(|(code, assertion)| Step::Happens(code, assertion)),
            4 => Just(Step::Received),
            1 => Just(Step::Lost),
            2 => Just(Step::Polled),
            1 => Just(Step::Drops),
        ]
    }

    proptest! {
        /// With any delay or loss of events, a consumer of the updates ends with the active faults, and a working
        /// subscription is never taken for a silent one.
        #[test]
        fn updates_lead_to_the_active_faults(steps in prop::collection::vec(step(), 0..60)) {
            let (mut faults, mut truth, mut view) = (DeviceFaults::default(), BTreeSet::new(), BTreeSet::new());
            let mut in_flight = VecDeque::new();
            let receive = |faults: &mut DeviceFaults, view: &mut BTreeSet<u64>, fault: &Fault| {
                faults.apply_event(fault);
                match fault.assertion {
                    Assertion::Occur => drop(view.insert(fault.code.number())),
                    Assertion::Recover => drop(view.remove(&fault.code.number())),
                    Assertion::Once => {}
                }
            };
            let poll = |faults: &mut DeviceFaults, view: &mut BTreeSet<u64>, response: PollResponse| {
                if let PollResult::Snapshot(all) = faults.apply_poll(response, true, s(0)) {
                    *view = all.iter().map(|fault| fault.code.number()).collect();
                }
            };
            let codes = |truth: &BTreeSet<u32>| has(&truth.iter().copied().collect::<Vec<_>>());
            for step in steps {
                match step {
                    Step::Happens(code, assertion) => {
                        match assertion {
                            Assertion::Occur => drop(truth.insert(code)),
                            Assertion::Recover => drop(truth.remove(&code)),
                            Assertion::Once => {}
                        }
                        in_flight.push_back(fault(code, assertion));
                    }
                    Step::Received => {
                        if let Some(fault) = in_flight.pop_front() {
                            receive(&mut faults, &mut view, &fault);
                        }
                    }
                    Step::Lost => {
                        in_flight.pop_front();
                        faults.mark_incomplete();
                    }
                    Step::Polled => poll(&mut faults, &mut view, Ok(codes(&truth))),
                    Step::Drops => poll(&mut faults, &mut view, failed(-8012)),
                }
            }
            for fault in in_flight {
                receive(&mut faults, &mut view, &fault);
            }
            prop_assert_eq!(faults.overdue_event(s(1000)), None);
            poll(&mut faults, &mut view, Ok(codes(&truth)));
            prop_assert!(view.iter().eq(truth.iter().map(|code| u64::from(*code)).collect::<Vec<_>>().iter()));
        }
    }
}
