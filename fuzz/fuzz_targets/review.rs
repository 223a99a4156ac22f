//! Any body as an admission review: no panic, and an answer that is JSON with the request's uid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use swansong_webhook::config::Config;
use swansong_webhook::ready_nodes::ReadyNodes;
use swansong_webhook::review::answer;

fuzz_target!(|body: &[u8]| {
    let Ok(answer) = answer(body, &Config::default(), ReadyNodes::Unknown) else { return };
    let answer: Value = serde_json::from_slice(&answer.body).expect("the answer is JSON");
    assert_eq!(answer["response"]["allowed"], true);
    assert!(answer["response"]["uid"].is_string());
});
