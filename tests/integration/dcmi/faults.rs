//! The output of the process, with a healthy driver and with failures.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use swansong_dcmi::Api;
use swansong_dcmi::watch::{Line, Mode};
use swansong_fake_dcmi::codes_after_flood;
use swansong_fault_model::{Assertion, Severity, SourceUpdate, Subject};

use super::child::{TEST_TIMEOUT, Watch, codes};

/// The active codes after a flood, with their NPUs.
fn remaining(count: u32) -> Vec<(u32, u64)> {
    codes_after_flood(count, 8, 0x8000_0000).into_iter().map(|(npu, code)| (npu, code.into())).collect()
}

/// Flags without polls during a test.
const WITHOUT_POLLS: [&str; 4] = ["--poll", "1h", "--repoll", "1h"];

#[test]
fn reports_active_faults_first_and_then_events() {
    let watch = Watch::start(&WITHOUT_POLLS, |script| {
        script.card(0, 2).card(1, 1).physical(0, 4).physical(1, 5).physical(2, 0);
        script.codes(1, &[0x80E0_1801]);
    });
    let state = watch.state(|mode| *mode == Mode::Subscribed);
    assert_eq!((state.api, state.dcmi_version.as_deref()), (Api::V1, Some("24.1.0")));
    assert_eq!(state.driver_version.as_deref(), Some("25.5.0"));
    let physical: Vec<u32> = state.devices.iter().map(|device| device.physical).collect();
    assert_eq!(physical, [4, 5, 0]);
    assert!(watch.snapshot(4, |_| true).is_empty());
    assert_eq!(codes(&watch.snapshot(5, |_| true)), ["80E01801"]);
    assert!(watch.snapshot(0, |_| true).is_empty());

    watch.script.event(2, 0x8107_8603, 1, 1, "node type=NIC, link down");
    let event = watch.event();
    assert_eq!((event.subject, event.code.as_str()), (Subject::Npu(0), "81078603"));
    assert_eq!((event.severity, event.assertion), (Some(Severity::Minor), Assertion::Occur));
    assert_eq!(event.name.as_deref(), Some("node type=NIC, link down"));
    assert!(event.at > 1_600_000_000_000);
    watch.script.event(2, 0x8107_8603, 1, 0, "").event(0, 0xA230_1001, 3, 2, "");
    assert_eq!(watch.event().assertion, Assertion::Recover);
    let notice = watch.event();
    assert_eq!((notice.assertion, notice.severity), (Assertion::Once, Some(Severity::Critical)));
    assert_eq!((notice.subject, notice.name), (Subject::Npu(4), None));
    assert_eq!(watch.script.violations(), "");
}

#[test]
fn watches_through_the_second_generation_of_the_api() {
    let watch = Watch::without(&["V1"], &WITHOUT_POLLS, |script| {
        script.card(0, 2).physical(1, 9);
    });
    assert_eq!(watch.subscribed().api, Api::V2);
    watch.script.event(1, 0x80E0_1801, 2, 1, "HBM");
    assert_eq!(watch.event().subject, Subject::Npu(9));
    assert_eq!(watch.script.violations(), "");
}

#[test]
fn retries_the_initialization() {
    let flags = ["--init-interval", "10ms"];
    let watch = Watch::without(&["V2"], &flags, |script| {
        script.init_fails(3, -8005);
    });
    let mut troubles = 0;
    watch.find(|line| match line {
        Line::Trouble(why) => {
            assert!(why.contains("-8005"), "{why}");
            troubles += 1;
            None
        }
        Line::State(_) => Some(()),
        _ => None,
    });
    assert_eq!(troubles, 3);
    watch.subscribed();
}

#[test]
fn exits_after_the_initialization_timeout() {
    let flags = ["--init-interval", "10ms", "--init-timeout", "100ms"];
    let mut watch = Watch::without(&["V2"], &flags, |script| {
        script.init_fails(-1, -8010);
    });
    assert!(watch.end_reason().contains("dcmi_init: -8010"));
    assert_eq!(watch.wait(), Ok(1));
}

#[test]
fn retries_while_there_are_no_devices() {
    let watch = Watch::start(&["--init-interval", "10ms"], |script| {
        script.line("card 0 0");
    });
    watch.find(|line| match line {
        Line::Trouble(why) => (why == "the driver lists no NPU").then_some(()),
        _ => None,
    });
    watch.script.card(3, 1);
    assert_eq!(watch.subscribed().devices[0].address.card, 3);
}

#[test]
fn exits_if_the_file_is_no_library() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_swansong"))
        .args(["dcmi", "--library", "/no/such/libdcmi.so"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Closing its stdin would end the process for another reason.
    let _stdin = process.stdin.take();
    let output = process.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let output = String::from_utf8(output.stdout).expect("text");
    assert!(output.contains("/no/such/libdcmi.so can't be loaded"), "{output}");
}

#[test]
fn polls_products_without_subscription() {
    for (without, code, tries, reason) in [
        (&[][..], -8255, 1, "-8255"),
        (&[], -8006, 3, "-8006"),
        (&["dcmi_subscribe_fault_event"], 0, 1, "upgrade the driver"),
    ] {
        let flags = ["--poll", "50ms", "--repoll", "1h", "--subscribe-interval", "10ms"];
        let watch = Watch::without(without, &flags, |script| {
            script.result("subscribe", code, None);
        });
        let state = watch.state(|mode| matches!(mode, Mode::Polling(_)));
        assert!(matches!(&state.mode, Mode::Polling(why) if why.contains(reason)), "{state:?} {tries}");
        watch.script.codes(2, &[0x80E0_1801]);
        assert_eq!(codes(&watch.snapshot(2, |faults| !faults.is_empty())), ["80E01801"]);
        watch.script.codes(2, &[]);
        watch.snapshot(2, <[_]>::is_empty);
    }
}

#[test]
fn retries_the_subscription() {
    let watch = Watch::start(&["--subscribe-interval", "2s"], |script| {
        script.result("subscribe", -8020, None);
    });
    // The devices are polled before the second attempt.
    watch.snapshot(7, |_| true);
    watch.script.result("subscribe", 0, None);
    watch.subscribed();
    watch.script.event(0, 0x80E0_1801, 2, 1, "");
    watch.event();
}

#[test]
fn reports_a_dropped_card_and_its_return() {
    let watch = Watch::start(&["--poll", "50ms", "--repoll", "50ms"], |script| {
        script.codes(3, &[0x80E0_1801]);
    });
    watch.subscribed();
    watch.script.result("health", -8012, Some(3));
    let faults = watch.snapshot(3, |faults| faults.len() == 2);
    assert_eq!(codes(&faults), ["80E01801", "40F84E00"]);
    assert_eq!(faults[1].severity, Some(Severity::Critical));
    watch.script.codes(3, &[]).result("health", 0, Some(3));
    watch.snapshot(3, <[_]>::is_empty);
}

#[test]
fn unresponsive_device_is_unavailable_and_not_healthy() {
    for (function, code) in [("health", -8005), ("error-codes", -8010), ("health", -8006), ("health", -77)] {
        let watch = Watch::start(&["--poll", "50ms", "--repoll", "50ms"], |script| {
            script.result(function, code, Some(1));
        });
        let mut others = 0;
        watch.find(|line| match line {
            Line::Update(SourceUpdate::Unavailable { subject: Subject::Npu(1), reason: why }) => {
                assert!(why.contains(&code.to_string()) && !why.contains("missing"), "{why}");
                (others > 20).then_some(())
            }
            Line::Update(SourceUpdate::Snapshot { subject, .. }) => {
                assert_ne!(subject, Subject::Npu(1), "{code}");
                others += 1;
                None
            }
            _ => None,
        });
        watch.script.result(function, 0, None);
        watch.snapshot(1, <[_]>::is_empty);
    }
}

#[test]
fn absent_device_is_unavailable() {
    let watch = Watch::start(&WITHOUT_POLLS, |script| {
        script.health(6, u32::MAX);
    });
    assert!(watch.unavailable(6).contains("absent"));
}

#[test]
fn burst_of_ten_thousand_events_is_received_or_counted_as_lost() {
    // The last four occurrences have no recovery.
    const COUNT: u32 = 10_004;
    let watch = Watch::start(&WITHOUT_POLLS, |_| {});
    watch.subscribed();
    watch.script.flood(COUNT, 0, 0x8000_0000);
    let remaining = remaining(COUNT);
    watch.active_codes(|active, counts| {
        counts.events + counts.lost == u64::from(COUNT) && active.iter().eq(&remaining)
    });
}

#[test]
fn polls_for_events_lost_without_a_reader() {
    const COUNT: u32 = 20_004;
    let watch = Watch::start(&WITHOUT_POLLS, |_| {});
    watch.subscribed();
    // The pipe holds 64 KiB and the queue 4096 events.
    watch.script.flood(COUNT, 0, 0x8000_0000).line("end");
    let begun = Instant::now();
    while !watch.script.violations().contains("no command end") {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the flood doesn't end");
        sleep(Duration::from_millis(5));
    }
    let remaining = remaining(COUNT);
    assert_eq!(remaining.len(), 4);
    watch.active_codes(|active, counts| counts.lost > 10_000 && active.iter().eq(&remaining));
}

#[test]
fn receives_ten_thousand_events_a_minute() {
    // Three seconds of events.
    const COUNT: u32 = 500;
    let watch = Watch::start(&WITHOUT_POLLS, |_| {});
    watch.subscribed();
    watch.script.flood(COUNT, 10_000, 0x8000_0000);
    let counts = watch.counts(|counts| counts.events >= u64::from(COUNT));
    assert_eq!((counts.events, counts.lost), (u64::from(COUNT), 0));
}

#[test]
fn counts_events_of_unknown_devices_and_invalid_events() {
    let watch = Watch::start(&WITHOUT_POLLS, |script| {
        script.card(0, 1);
    });
    watch.subscribed();
    let script = &watch.script;
    script.event(700, 0x80E0_1801, 2, 1, "");
    // No fault; the event id 0; an unknown severity and an unknown assertion; no record.
    let mut record = [0xFF_u8; 360];
    script.raw(&record);
    record[..4].fill(0);
    script.raw(&record).line("event 0 0 2 1 nothing").line("event 0 80E01802 2 9 what").line("null");
    record[12..14].fill(0);
    record[19] = 1;
    script.raw(&record);
    let event = watch.event();
    assert_eq!((event.code.as_str(), event.severity, event.name), ("FFFFFFFF", None, None));
    // The last byte of the name isn't zero, and it is no text.
    let mut record = [0; 360];
    record[8..12].copy_from_slice(&0x80E0_1803_u32.to_le_bytes());
    record[18..20].copy_from_slice(&[2, 1]);
    record[40..296].fill(b'x');
    record[44..48].copy_from_slice(&[0x1B, b'\n', 0x80, 0xC3]);
    script.raw(&record);
    let name = watch.event().name.expect("a name");
    assert_eq!(name, format!("xxxx {}", "x".repeat(248)));
    let counts = watch.counts(|counts| counts.events == 7);
    assert_eq!((counts.unknown_device, counts.ignored, counts.lost), (2, 4, 1));
}

#[test]
fn lists_devices_at_an_event_of_a_new_one() {
    let watch = Watch::start(&["--poll", "1h", "--repoll", "50ms"], |script| {
        script.card(0, 1);
    });
    watch.subscribed();
    watch.script.card(1, 1);
    let state = watch.state(|_| true);
    assert_eq!(state.devices.len(), 2);
    watch.script.event(1, 0x80E0_1801, 2, 1, "");
    assert_eq!(watch.event().subject, Subject::Npu(1));
}

#[test]
fn polls_a_device_after_its_reset() {
    let watch = Watch::start(&WITHOUT_POLLS, |script| {
        script.card(0, 1).codes(0, &[0x80E0_1801]);
    });
    watch.subscribed();
    watch.script.codes(0, &[]).event(0, 0x8C2F_A009, 0, 2, "reset finished");
    watch.snapshot(0, <[_]>::is_empty);
}

#[test]
fn exits_when_the_driver_stops_sending_events() {
    let flags = ["--poll", "50ms", "--repoll", "50ms"];
    let mut watch = Watch::start(&flags, |_| {});
    watch.subscribed();
    watch.script.event(0, 0x80E0_1801, 2, 1, "delivered");
    watch.event();
    watch.script.line("end-thread").event(5, 0x80E0_1802, 2, 1, "not delivered");
    // The next poll finds the fault.
    assert_eq!(codes(&watch.snapshot(5, |faults| !faults.is_empty())), ["80E01802"]);
    let why = watch.end_reason();
    assert!(why.contains("there was none for 80E01802 at npu5"), "{why}");
    assert_eq!(watch.wait(), Ok(1));
}

#[test]
fn hanging_call_stops_the_heartbeat() {
    let mut watch = Watch::start(&["--poll", "20ms", "--repoll", "20ms"], |_| {});
    watch.subscribed();
    watch.script.hang("health");
    // Five heartbeats are missing.
    let begun = Instant::now();
    while watch.line_within(Duration::from_millis(100)).is_some() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the heartbeat doesn't stop");
    }
    // The process still ends with its stdin.
    watch.close_stdin();
    assert_eq!(watch.wait(), Ok(0));
}

#[test]
fn crash_ends_only_the_watching_process() {
    let mut watch = Watch::start(&WITHOUT_POLLS, |_| {});
    watch.subscribed();
    watch.script.crash();
    assert_eq!(watch.wait(), Err(11));
}

#[test]
fn exits_when_its_parent_is_killed() {
    let mut parent = Command::new("tail")
        .args(["-f", "/dev/null"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("tail is installed");
    let held = parent.stdout.take().expect("its stdout");
    let mut watch = Watch::with_stdin(&[], &WITHOUT_POLLS, held.into(), |_| {});
    watch.subscribed();
    parent.kill().expect("killed");
    parent.wait().expect("waited for");
    assert_eq!(watch.wait(), Ok(0));
}

#[test]
fn output_of_the_library_is_no_line() {
    let watch = Watch::start(&WITHOUT_POLLS, |_| {});
    watch.subscribed();
    watch.script.line("print {\"seen\":\"nonsense\"}").event(0, 0x80E0_1801, 2, 1, "");
    watch.event();
}
