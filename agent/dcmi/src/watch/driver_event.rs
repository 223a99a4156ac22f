//! Interprets the driver's events.

use swansong_fault_model::{Assertion, Code, Severity};

use crate::layout::Event;
use crate::text::one_line;

/// `DMS_FAULT_EVENT` of `enum dcmi_event_type`.
const FAULT: u32 = 0;

/// A device was reset: MindCluster polls its faults then and does nothing else
/// (`DoSaveDevFaultInfo` in `ascend-device-plugin/pkg/common/fault_code.go`).
const RESET_FINISHED: u32 = 0x8C2F_A009;

/// An interpreted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DriverEvent {
    /// Not a fault, or the event id 0, which MindCluster ignores too.
    Ignored,
    /// The device has to be polled: it was reset, or the event can't be interpreted.
    Poll {
        /// The device's logic id.
        logic: u32,
        /// Whether the event was interpreted.
        is_valid: bool,
    },
    /// A fault began, ended or is a notice.
    Fault(Fault),
}

/// A fault of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) logic: u32,
    pub(crate) code: Code,
    pub(crate) severity: Option<Severity>,
    pub(crate) assertion: Assertion,
    pub(crate) name: Option<String>,
}

impl DriverEvent {
    pub(crate) fn parse(event: &Event) -> Self {
        let record = &event.dms_event;
        if event.kind != FAULT || record.event_id == 0 {
            return Self::Ignored;
        }
        let logic = record.deviceid.into();
        if record.event_id == RESET_FINISHED {
            return Self::Poll { logic, is_valid: true };
        }
        let Some(assertion) = Assertion::from_repr(record.assertion) else {
            return Self::Poll { logic, is_valid: false };
        };
        Self::Fault(Fault {
            logic,
            code: Code::from(record.event_id),
            severity: Severity::from_repr(record.severity),
            assertion,
            name: one_line(&record.event_name),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::DmsFaultEvent;

    fn event(kind: u32, event_id: u32, severity: u8, assertion: u8, event_name: [u8; 256]) -> Event {
        let dms_event = DmsFaultEvent {
            event_id,
            deviceid: 3,
            node_type: 0,
            node_id: 0,
            sub_node_type: 0,
            sub_node_id: 0,
            severity,
            assertion,
            event_serial_num: 0,
            notify_serial_num: 0,
            alarm_raised_time: 0,
            event_name,
            additional_info: [0; 32],
            resv: [0; 32],
        };
        Event { kind, dms_event }
    }

    #[test]
    fn events_that_are_no_faults() {
        for (kind, id, assertion, expected) in [
            (0, 0, 1, DriverEvent::Ignored),
            (1, 0x80E0_1801, 1, DriverEvent::Ignored),
            (u32::MAX, 0x80E0_1801, 1, DriverEvent::Ignored),
            (0, 0x8C2F_A009, 2, DriverEvent::Poll { logic: 3, is_valid: true }),
            (0, 0x80E0_1801, 3, DriverEvent::Poll { logic: 3, is_valid: false }),
        ] {
            assert_eq!(
                DriverEvent::parse(&event(kind, id, 0, assertion, [0; 256])),
                expected,
                "{kind} {id:X} {assertion}"
            );
        }
    }

    proptest! {
        #[test]
        fn parses_any_record(
            kind in prop_oneof![Just(0), any::<u32>()],
            id: u32,
            severity: u8,
            assertion in prop_oneof![0..3_u8, any::<u8>()],
            name: [u8; 256],
        ) {
            match DriverEvent::parse(&event(kind, id, severity, assertion, name)) {
                DriverEvent::Fault(fault) => {
                    prop_assert!(kind == 0 && id != 0 && assertion < 3);
                    prop_assert_eq!(fault.code.number(), u64::from(id));
                    prop_assert_eq!(fault.severity.is_some(), severity < 4);
                    prop_assert!(fault.name.is_none_or(|name| !name.contains(char::is_control)));
                }
                DriverEvent::Poll { logic, .. } => prop_assert_eq!(logic, 3),
                DriverEvent::Ignored => prop_assert!(kind != 0 || id == 0),
            }
        }
    }
}
