//! The binding against the fake libdcmi.so.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use swansong_dcmi::{
    Address, Api, CallError, Events, Health, Library, OpenError, ReturnCode, SubscribeError,
};
use swansong_fake_dcmi::{Script, build_without};
use tempfile::TempDir;

struct FakeLibrary {
    _folder: TempDir,
    script: Script,
    library: Library,
}

fn fake(without: &[&str], write: impl FnOnce(&Script)) -> FakeLibrary {
    let folder = tempfile::tempdir().expect("a folder");
    let path = build_without(folder.path(), without);
    let script = Script::beside(&path);
    write(&script);
    let library = Library::open(&path).expect("loaded");
    FakeLibrary { _folder: folder, script, library }
}

fn failed(function: &'static str, number: i32) -> CallError {
    let code = ReturnCode::check(number).expect_err("a failure");
    CallError::Failed { function, code }
}

const fn at(card: i32, device: i32) -> Address {
    Address { card, device }
}

#[test]
fn reads_everything_through_v1() {
    let fake = fake(&[], |script| {
        script.card(2, 2).card(5, 1).physical(0, 6).physical(1, 7).physical(2, 0);
        script.codes(1, &[0x80E0_1801, 0x8107_8603, 0x80E0_1801, 0]).health(2, 3);
        script.line("dcmi-version 24.1.rc1").line("driver-version 25.5.0");
    });
    let dcmi = fake.library.init().expect("starts");
    assert_eq!(dcmi.api(), Api::V1);
    let listed = dcmi.devices().expect("listed");
    let names: Vec<_> = listed
        .devices
        .iter()
        .map(|device| (device.address.card, device.address.device, device.logic, device.physical))
        .collect();
    // Each card has an MCU too, which is no device.
    assert_eq!(names, [(2, 0, 0, 6), (2, 1, 1, 7), (5, 0, 2, 0)]);
    assert_eq!(listed.unnamed, Vec::<String>::new());
    assert_eq!(dcmi.health(at(2, 0)), Ok(Health::Normal));
    assert_eq!(dcmi.health(at(2, 1)), Ok(Health::Unhealthy(2)));
    assert_eq!(dcmi.health(at(5, 0)), Ok(Health::Unhealthy(3)));
    assert_eq!(dcmi.error_codes(at(2, 1)), Ok(vec![0x80E0_1801, 0x8107_8603]));
    assert_eq!(dcmi.error_codes(at(2, 0)), Ok(vec![]));
    assert_eq!(dcmi.health(at(9, 0)), Err(failed("dcmi_get_device_health", -8007)));
    assert_eq!(dcmi.dcmi_version().as_deref(), Some("24.1.rc1"));
    assert_eq!(dcmi.driver_version().as_deref(), Some("25.5.0"));
    assert_eq!(fake.script.violations(), "");
}

#[test]
fn reads_everything_through_v2() {
    let fake = fake(&["V1"], |script| {
        script.card(0, 3).physical(1, 9).codes(2, &[0xA230_1001]).health(0, u32::MAX - 1);
    });
    let dcmi = fake.library.init().expect("starts");
    assert_eq!(dcmi.api(), Api::V2);
    let listed = dcmi.devices().expect("listed");
    let names: Vec<_> = listed.devices.iter().map(|device| (device.logic, device.physical)).collect();
    assert_eq!(names, [(0, 0), (1, 9), (2, 2)]);
    assert_eq!(dcmi.health(at(0, 0)), Ok(Health::Unhealthy(u32::MAX - 1)));
    fake.script.health(0, u32::MAX);
    wait(|| dcmi.health(at(0, 0)) == Ok(Health::Absent));
    assert_eq!(dcmi.error_codes(at(2, 0)), Ok(vec![0xA230_1001]));
    assert_eq!(dcmi.dcmi_version().as_deref(), Some("24.1.0"));
    assert_eq!(dcmi.driver_version(), None);
    assert_eq!(fake.script.violations(), "");
}

#[test]
fn initializes_v2_if_v1_fails() {
    let fake = fake(&[], |script| {
        script.init_fails(1, -8255);
    });
    assert_eq!(fake.library.init().expect("starts").api(), Api::V2);
}

#[test]
fn explains_a_failed_initialization() {
    for (without, code, said) in [
        (
            &["V2"][..],
            -8005,
            "the driver can't be initialized: dcmi_init: -8005 (internal error; is the device held by another container or virtual machine?)",
        ),
        (
            &["V1"],
            -8010,
            "the driver can't be initialized: dcmiv2_init: -8010 (sending to the device failed)",
        ),
        (
            &["V1", "V2"],
            0,
            "the driver can't be initialized: libdcmi.so has neither dcmi_init nor dcmiv2_init; upgrade the driver",
        ),
        (
            &[],
            -9999,
            "the driver can't be initialized: dcmi_init: -9999 (not documented); dcmiv2_init: -9999 (not documented)",
        ),
    ] {
        let fake = fake(without, |script| {
            script.init_fails(-1, code);
        });
        let error = fake.library.init().expect_err("fails");
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn initialization_can_be_retried() {
    let fake = fake(&["V2"], |script| {
        script.init_fails(2, -8005);
    });
    assert!(fake.library.init().is_err());
    assert!(fake.library.init().is_err());
    assert!(fake.library.init().is_ok());
}

#[test]
fn reports_missing_functions() {
    let without = [
        "dcmi_get_device_health",
        "dcmi_get_device_errorcode_v2",
        "dcmi_get_dcmi_version",
        "dcmi_get_driver_version",
        "dcmi_get_card_list",
        "dcmi_get_device_phyid_from_logicid",
    ];
    let fake = fake(&without, |_| {});
    let dcmi = fake.library.init().expect("starts");
    // Listed by the other function, named by logic id.
    let listed = dcmi.devices().expect("listed");
    assert!(listed.devices.iter().all(|device| device.logic == device.physical));
    assert_eq!(listed.devices.len(), 8);
    let error = dcmi.health(at(0, 0)).expect_err("missing");
    assert_eq!(error.to_string(), "libdcmi.so has no dcmi_get_device_health; upgrade the driver");
    assert!(error.is_final());
    assert_eq!(dcmi.error_codes(at(0, 0)), Err(CallError::Missing("dcmi_get_device_errorcode_v2")));
    assert_eq!((dcmi.dcmi_version(), dcmi.driver_version()), (None, None));
}

#[test]
fn reports_devices_without_ids() {
    let fake = fake(&[], |script| {
        script.card(0, 1).card(1, 1).card(2, 1).physical(0, 1).physical(1, 0);
        script.result("physical-id", -8012, Some(2));
    });
    let dcmi = fake.library.init().expect("starts");
    let listed = dcmi.devices().expect("listed");
    assert_eq!(listed.devices.len(), 2);
    assert_eq!(listed.unnamed.len(), 1);
    assert!(listed.unnamed[0].contains("logic id 2") && listed.unnamed[0].contains("-8012"), "{listed:?}");
    fake.script.result("logic-id", -8006, Some(1));
    wait(|| dcmi.devices().is_ok_and(|listed| listed.devices.len() == 1 && listed.unnamed.len() == 2));
}

#[test]
fn bounds_counts_of_the_library() {
    for claim in [i32::MIN, -1, 129, i32::MAX] {
        let fake = fake(&[], |script| {
            script.codes(0, &[0x80E0_1801]);
            script
                .line(format_args!("claim error-codes {claim}"))
                .line(format_args!("claim card-list {claim}"));
        });
        let dcmi = fake.library.init().expect("starts");
        let codes = dcmi.error_codes(at(0, 0)).expect("codes");
        assert_eq!(codes, if claim < 0 { vec![] } else { vec![0x80E0_1801] });
        // What is beyond the list that was written is a card 0 that exists already.
        let listed = dcmi.devices().expect("listed");
        assert_eq!(listed.devices.len(), if claim < 0 { 0 } else { 8 });
    }
}

#[test]
fn rejects_files_that_are_no_library() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("libdcmi.so");
    let refused = || {
        let OpenError { problem, .. } = Library::open(&path).expect_err("refused");
        problem
    };
    assert!(refused().contains("No such file"), "{}", refused());
    fs::write(&path, "text").expect("written");
    assert!(refused().contains("file too short") || refused().contains("ELF"), "{}", refused());
}

/// One test for everything that depends on the single subscription of a process.
#[test]
fn process_subscribes_once() {
    let mut events = Events::take().expect("not taken yet");
    assert!(Events::take().is_none());
    let fake = fake(&[], |script| {
        script.result("subscribe", -8006, None);
        script.event(3, 1, 3, 1, "before it was loaded");
    });
    let dcmi = fake.library.init().expect("starts");
    let refused = dcmi.subscribe(&events).expect_err("refused");
    assert_eq!(refused, SubscribeError::Call(failed("dcmi_subscribe_fault_event", -8006)));
    fake.script.result("subscribe", 0, None);
    wait(|| dcmi.subscribe(&events).is_ok());
    assert_eq!(dcmi.subscribe(&events), Err(SubscribeError::Already));

    // The record is copied before the driver's memory is used for something else.
    let timeout = Duration::from_mins(1);
    fake.script.event(3, 0x80E0_1801, 2, 1, "node type=NPU, sensor name=HBM");
    let received = events.next(timeout).expect("an event");
    let record = received.event.dms_event;
    assert_eq!(
        (received.event.kind, record.event_id, record.deviceid, record.severity, record.assertion),
        (0, 0x80E0_1801, 3, 2, 1)
    );
    assert!(record.event_name.starts_with(b"node type=NPU, sensor name=HBM\0"));
    assert_eq!(record.resv, [0; 32]);
    assert!(received.at > 1_600_000_000_000, "milliseconds");

    // Each byte is where it belongs.
    let bytes: Vec<u8> = (0..=255).cycle().take(360).collect();
    fake.script.raw(&bytes);
    let event = events.next(timeout).expect("an event").event;
    assert_eq!(event.kind, 0x0302_0100);
    assert_eq!(event.dms_event.event_id, 0x0B0A_0908);
    assert_eq!(event.dms_event.deviceid, 0x0D0C);
    assert_eq!((event.dms_event.severity, event.dms_event.assertion), (18, 19));
    assert_eq!(event.dms_event.event_serial_num, 0x1716_1514);
    assert_eq!(event.dms_event.notify_serial_num, 0x1B1A_1918);
    assert_eq!(event.dms_event.alarm_raised_time, 0x2726_2524_2322_2120);
    assert_eq!(event.dms_event.event_name[..], bytes[40..296]);
    assert_eq!(event.dms_event.additional_info[..], bytes[296..328]);
    assert_eq!(event.dms_event.resv[..], bytes[328..360]);

    // The driver calls back without an event.
    assert_eq!(events.lost(), 0);
    fake.script.line("null").event(0, 7, 0, 2, "");
    assert_eq!(events.next(timeout).expect("an event").event.dms_event.event_id, 7);
    assert_eq!((events.lost(), events.lost()), (1, 0));

    // Without a consumer, events that exceed the capacity are counted, and the driver isn't blocked.
    fake.script.flood(10_000, 0, 0x8000_0000);
    let lost = 10_000 - u64::try_from(swansong_dcmi::CAPACITY).expect("small");
    let mut seen = 0;
    wait(|| {
        seen += events.lost();
        seen == lost
    });
    let taken = std::iter::from_fn(|| events.try_next());
    let serials: BTreeSet<i32> = taken.map(|event| event.event.dms_event.event_serial_num).collect();
    assert_eq!(serials.len(), swansong_dcmi::CAPACITY);
    assert_eq!(fake.script.violations(), "");
}

/// Waits until `done`, at most a minute.
fn wait(mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_mins(1), "it doesn't happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
