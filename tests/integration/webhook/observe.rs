//! Logs and metrics.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Webhook, review};

#[test]
fn metrics_are_sound_and_ours() {
    let webhook = Webhook::start(&[]);
    assert_eq!(webhook.review(&review()).status, 200);
    let (status, text) = webhook.health("/metrics");
    assert_eq!(status, 200);
    let mut described = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            assert!(matches!(words.next(), Some("HELP" | "TYPE")), "{line}");
            described.push(words.next().expect("a name").to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = series.split('{').next().expect("a name");
        assert!(name.starts_with("swansong_"), "{line}");
        assert!(described.iter().any(|known| name.starts_with(known.as_str())), "{line}");
    }
    for (series, value) in [
        (r#"swansong_reviews_total{kind="Pod",result="injected",reason=""}"#, 1.0),
        ("swansong_review_duration_seconds_count", 1.0),
        (r#"swansong_review_duration_seconds_bucket{le="+Inf"}"#, 1.0),
        (concat!("swansong_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ] {
        assert_eq!(webhook.metric(series), Some(value), "{series}\n{text}");
    }
}

#[test]
fn served_certificate_is_shown_without_its_key() {
    let webhook = Webhook::start(&[]);
    let (status, shown) = webhook.health("/certificate");
    let file = std::fs::read_to_string(webhook.pair.certificate_file()).expect("readable");
    assert_eq!((status, shown.replace('\r', "")), (200, file.replace('\r', "")));
    assert!(!shown.contains("KEY"), "{shown}");
}

#[test]
fn logs_name_reasons_and_never_values() {
    let mut webhook = Webhook::start(&["--log-level", "debug"]);
    let mut body = review();
    body["request"]["object"]["metadata"] =
        json!({ "generateName": "p-", "annotations": { "recover-strategy": "dump" } });
    body["request"]["name"] = json!("");
    assert_eq!(webhook.review(&body).status, 200);
    let line = webhook.logged("reviewed");
    for (field, value) in [("object", "ns/p-*"), ("kind", "Pod"), ("result", "injected"), ("level", "DEBUG")]
    {
        assert_eq!(line[field], value, "{line}");
    }

    body["request"]["object"]["spec"]["containers"][0]["env"] =
        json!([{ "name": "TTP_PORT", "value": "9123" }, { "name": "TOKEN", "value": "hunter2" }]);
    assert_eq!(webhook.review(&body).status, 200);
    let line = webhook.logged("reviewed with warnings");
    assert_eq!(line["warnings"], "TtpPortNotDefault");
    assert_eq!(line["level"], "INFO");

    body["request"]["object"]["spec"]["containers"][0]["env"][1]["value"] = json!(4711);
    assert_eq!(webhook.review(&body).status, 200);
    let line = webhook.logged("review not processed");
    assert_eq!(line["reason"], "ObjectInvalid");
    assert_eq!(line["level"], "WARN");

    webhook.signal(Signal::SIGTERM);
    assert!(webhook.ended().success());
    let mut log = webhook.log.clone();
    for line in &mut log {
        // A timestamp can have the same digits.
        line["timestamp"].take();
    }
    let log = json!(log).to_string();
    for secret in ["hunter2", "9123", "4711"] {
        assert!(!log.contains(secret), "{log}");
    }
}
