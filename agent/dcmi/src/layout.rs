//! Memory layouts of `dcmi_interface_api.h`, checked at compile time: LP64, on x86-64 and aarch64.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::mem::{align_of, offset_of, size_of};

/// `struct dcmi_dms_fault_event`. Any bits are valid in each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DmsFaultEvent {
    /// The fault's code.
    pub event_id: c_uint,
    /// The *logic* id of the device.
    pub deviceid: u16,
    /// The kind of the part.
    pub node_type: u8,
    pub node_id: u8,
    /// The kind of the part within that.
    pub sub_node_type: u8,
    /// The part within that.
    pub sub_node_id: u8,
    /// 0 suggestion to 3 critical.
    pub severity: u8,
    /// 0 recovery, 1 occurrence, 2 notice.
    pub assertion: u8,
    /// Number of the event.
    pub event_serial_num: c_int,
    /// Number of the notice.
    pub notify_serial_num: c_int,
    /// When it occurred; the unit differs between documents, and recoveries have the time of the occurrence.
    pub alarm_raised_time: c_ulonglong,
    /// The driver's text, zero-terminated if it is shorter.
    pub event_name: [u8; 256],
    pub additional_info: [u8; 32],
    /// Newer headers subdivide it.
    pub resv: [u8; 32],
}

/// `struct dcmi_event`; its union has this one member.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// `enum dcmi_event_type`: 0 for a fault.
    pub kind: c_uint,
    pub dms_event: DmsFaultEvent,
}

/// `struct dcmi_event_filter`, passed by value. Zeroed it matches every event.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EventFilter {
    filter_flag: c_ulonglong,
    event_id: c_uint,
    severity: u8,
    node_type: u8,
    resv: [u8; 32],
}

macro_rules! layout {
    ($of:ty: $size:literal { $($field:ident $offset:literal)* }) => {
        const _: () = {
            assert!(size_of::<$of>() == $size);
            assert!(align_of::<$of>() == 8);
            $(assert!(offset_of!($of, $field) == $offset);)*
        };
    };
}

layout!(DmsFaultEvent: 352 {
    event_id 0 deviceid 4 node_type 6 node_id 7 sub_node_type 8 sub_node_id 9 severity 10 assertion 11
    event_serial_num 12 notify_serial_num 16 alarm_raised_time 24 event_name 32 additional_info 288 resv 320
});
layout!(Event: 360 { kind 0 dms_event 8 });
layout!(EventFilter: 48 { filter_flag 0 event_id 8 severity 12 node_type 13 resv 14 });
