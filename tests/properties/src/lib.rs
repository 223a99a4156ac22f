//! Properties of any input. Each function takes bytes and panics if the property doesn't hold.
//!
//! The fuzz targets (`tests/fuzz/fuzz_targets`) call these functions, and so do the tests of this crate with the seeds in
//! `tests/fuzz/seeds`.

#![expect(clippy::missing_panics_doc, reason = "a panic reports a violated property")]

mod certificates;
mod faults;
mod injection;

use std::str;

use serde_json::Value;
use swansong_api::preload::{entries, file_name};
use swansong_api::strategy::Strategies;
use swansong_inject::policy::PreloadOrder;
use swansong_inject::preload::{Joined, join, remove};
use swansong_inject::reason::Reason;
use swansong_webhook::config::Config;
use swansong_webhook::ready_nodes::ReadyNodes;
use swansong_webhook::review::{self, Verdict};

pub use self::certificates::pem;
pub use self::faults::{device_info, fault_code};
pub use self::injection::inject;

/// A property of any bytes, which panics if it doesn't hold.
pub type Property = fn(&[u8]);

/// All properties, by the names of their fuzz targets and folders of seeds.
pub const PROPERTIES: [(&str, Property); 10] = [
    ("agent_config", agent_config),
    ("config", config),
    ("device_info", device_info),
    ("fault_code", fault_code),
    ("inject", inject),
    ("pem", pem),
    ("preload", preload),
    ("review", review),
    ("strategy", strategy),
    ("trainer", trainer),
];

/// Any text as a configuration of the webhook: every error has a message.
pub fn config(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Err(faults) = Config::parse(text) {
        assert!(!faults.to_string().is_empty());
    }
}

/// Any text as a start script, command and process: they are read, and a report with an unread part is no promise.
pub fn trainer(input: &[u8]) {
    use swansong_trainer::{
        RunningProcess, Setting, TrainerReason, Verdict, read_command, read_process, read_script,
    };
    read_process(&RunningProcess { command_line: input, ..RunningProcess::default() });
    let Ok(text) = str::from_utf8(input) else { return };
    read_command(&["bash", "-c", text], &Setting::default());
    let report = read_script("start.sh", text, None, &Setting::default());
    let is_unread = report.findings.iter().any(|finding| finding.reason == TrainerReason::ScriptUnread);
    assert!(report.verdict != Verdict::Can || !is_unread && !report.trainings.is_empty(), "{text}");
}

/// Any text as a configuration of the agent: every error has a message.
pub fn agent_config(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Err(faults) = swansong_agent::config::Config::parse(text) {
        assert!(!faults.to_string().is_empty());
    }
}

/// Any body as an admission review: an answer is JSON, allows, and has the request's uid. A prefix of the body gives an
/// answer with the same uid.
pub fn review(input: &[u8]) {
    let config = Config::default();
    let uid = review::answer(input, &config, ReadyNodes::Unknown).ok().map(|answer| {
        assert_ne!(answer.verdict.as_str(), "denied");
        uid_allowed(&answer.body)
    });
    // A quarter, half and the whole of it.
    for part in [input.len() / 4, input.len() / 2, input.len()] {
        let Some(shed) = review::admit_unprocessed(&input[..part], Reason::Overloaded, &config) else {
            continue;
        };
        assert!(matches!(shed.verdict, Verdict::Shed(Reason::Overloaded) | Verdict::Skipped(_)));
        let shed = uid_allowed(&shed.body);
        if let Some(uid) = &uid {
            assert_eq!(&shed, uid);
        }
    }
}

fn uid_allowed(answer: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(answer).expect("the answer is JSON");
    let response = &answer["response"];
    assert_eq!(response["allowed"], true);
    assert_eq!(response.get("patch").is_some(), response.get("patchType").is_some());
    response["uid"].as_str().expect("a uid").to_owned()
}

/// Any LD_PRELOAD: both libraries are present, a second join adds nothing, and removing the added ones restores the value.
pub fn preload(input: &[u8]) {
    const OURS: [&str; 2] = ["/m.so", "/t.so"];
    let Ok(value) = str::from_utf8(input) else { return };
    for order in [PreloadOrder::First, PreloadOrder::Last] {
        let Some(joined) = join(&OURS, value, order) else { continue };
        let Joined { value: joined, added } = joined;
        for path in OURS {
            assert!(entries(&joined).any(|entry| file_name(entry) == file_name(path)));
            let count = entries(&joined).filter(|entry| *entry == path).count();
            assert!(!added.contains(&path) || count == 1, "{path} is there {count} times");
        }
        assert_eq!(join(&OURS, &joined, order), None);
        let added: Vec<String> = added.into_iter().map(str::to_owned).collect();
        assert_eq!(remove(&joined, &added).as_deref(), Some(value));
    }
}

/// Any recover-strategy: its normal form has the same tokens without blanks and is its own normal form.
pub fn strategy(input: &[u8]) {
    let Ok(value) = str::from_utf8(input) else { return };
    let strategies = Strategies::parse(value);
    let normalised = strategies.normalised();
    let again = Strategies::parse(&normalised);
    assert_eq!(again.tokens(), strategies.tokens());
    assert!(!again.is_padded());
    assert_eq!(again.normalised(), normalised);
    let dump = ["dump".to_owned()];
    assert_eq!(again.triggered_by(&dump), strategies.triggered_by(&dump));
}
