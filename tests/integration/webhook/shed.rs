//! Reviews without room or time are answered: admitted unchanged, and recorded in metrics, log and audit annotation.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::client::{Client, Response};
use crate::harness::{Webhook, ordered_review};

const MIB: usize = 1 << 20;

/// A review of so many bytes.
fn large(bytes: usize) -> Vec<u8> {
    let mut body = ordered_review("0a1b").into_bytes();
    body.resize(bytes, b' ');
    body
}

fn unprocessed(reason: &str) -> String {
    format!("swansong_reviews_unprocessed_total{{reason=\"{reason}\"}}")
}

fn shed(reason: &str) -> String {
    format!("swansong_reviews_total{{kind=\"Pod\",result=\"shed\",reason=\"{reason}\"}}")
}

/// Takes 8 MiB of room and keeps it until the client is dropped.
fn hog(webhook: &Webhook) -> Client {
    let mut client = webhook.client();
    client.head("POST", "/mutate", 8 * MIB);
    client.send(&[b' '; 8 << 10]);
    webhook.metric_becomes("swansong_large_body_bytes", 8.0 * 1024.0 * 1024.0);
    client
}

fn assert_admitted(response: &Response, reason: &str) {
    let answer = response.json();
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("0a1b"), &json!(true)));
    assert_eq!((response.get("patch"), response.get("patchType")), (None, None));
    assert_eq!(response["auditAnnotations"]["failed"], reason);
    let warning = response["warnings"][0].as_str().expect("a warning");
    assert!(warning.starts_with(&format!("swansong: {reason}: ")), "{warning}");
}

#[test]
fn a_large_review_without_memory_is_admitted_unchanged() {
    // The hog may be slow without end as far as this test goes.
    let webhook = Webhook::start(&["--body-memory", "8", "--review-timeout", "1h"]);
    let stalled = hog(&webhook);
    let mut waiting = webhook.client();
    waiting.head("POST", "/mutate?timeout=4s", MIB);
    waiting.send(&large(MIB));
    let response = waiting.response();
    assert_admitted(&response, "Overloaded");
    assert_eq!(response.header("connection"), None, "its body was read to the end");
    let small = waiting.post("/mutate", ordered_review("0a1b").as_bytes()).json();
    assert!(small["response"]["patch"].is_string(), "small ones are processed");
    assert_eq!(webhook.metric(&shed("Overloaded")), Some(1.0));
    assert_eq!(webhook.metric(&unprocessed("Overloaded")), Some(1.0));

    // Without a uid there is no answer; the API server's failurePolicy decides.
    let mut junk = webhook.client();
    junk.head("POST", "/mutate?timeout=4s", MIB);
    junk.send(&vec![b' '; MIB]);
    assert_eq!(junk.response().status, 503);
    junk.expect_closed();
    assert_eq!(webhook.metric(&unprocessed("Overloaded")), Some(2.0));
    assert_eq!(webhook.metric(r#"swansong_requests_refused_total{cause="overloaded"}"#), Some(1.0));

    drop(stalled);
    webhook.metric_becomes("swansong_large_body_bytes", 0.0);
    let answer = waiting.post("/mutate", &large(MIB)).json();
    assert!(answer["response"]["patch"].is_string(), "there is room again");
}

#[test]
fn a_body_that_stalls_releases_its_memory_at_its_deadline() {
    let webhook = Webhook::start(&["--body-memory", "8", "--review-timeout", "2s"]);
    let mut stalled = hog(&webhook);
    assert_eq!(stalled.response().status, 408);
    webhook.metric_becomes("swansong_large_body_bytes", 0.0);
    let answer = webhook.client().post("/mutate", &large(MIB)).json();
    assert!(answer["response"]["patch"].is_string());
}

#[test]
fn a_review_that_takes_too_long_to_arrive_is_admitted_unchanged() {
    let mut webhook = Webhook::start(&["--review-timeout", "1s"]);
    for body in [ordered_review("0a1b").into_bytes(), large(MIB)] {
        let mut client = webhook.client();
        client.head("POST", "/mutate", body.len());
        client.send(&body[..body.len() - 1]);
        let response = client.response();
        assert_admitted(&response, "BodyTimeout");
        assert_eq!(response.header("connection"), Some("close"));
        client.expect_closed();
        let line = webhook.logged("review not processed");
        assert_eq!(
            (&line["object"], &line["result"], &line["reason"], &line["level"]),
            (&json!("ns/p"), &json!("shed"), &json!("BodyTimeout"), &json!("WARN"))
        );
    }
    let mut client = webhook.client();
    client.head("POST", "/mutate", 1000);
    client.send(b"{");
    assert_eq!(client.response().status, 408, "there is no uid to answer to");
    client.expect_closed();
    assert_eq!(webhook.logged("request refused")["reason"], "BodyTimeout");
    assert_eq!(webhook.metric(&shed("BodyTimeout")), Some(2.0));
    assert_eq!(webhook.metric(&unprocessed("BodyTimeout")), Some(3.0));
    assert_eq!(webhook.metric(r#"swansong_requests_refused_total{cause="too_slow"}"#), Some(1.0));
}

#[test]
fn shorter_timeout_of_the_api_server_applies() {
    let webhook = Webhook::start(&["--review-timeout", "1h"]);
    let mut client = webhook.client();
    let body = ordered_review("0a1b");
    client.head("POST", "/mutate?timeout=1s", body.len());
    client.send(&body.as_bytes()[..body.len() - 1]);
    assert_admitted(&client.response(), "BodyTimeout");
}

#[test]
fn counts_reviews_that_the_api_server_no_longer_waits_for() {
    let webhook = Webhook::start(&["--review-timeout", "1h"]);
    let body = ordered_review("0a1b");
    let mut client = webhook.client();
    client.head("POST", "/mutate?timeout=1s", body.len());
    webhook.metric_becomes("swansong_requests_in_flight", 1.0);
    let head_was_read = Instant::now();
    // Halted, as by a node without CPU, until the timeout has passed.
    webhook.halt();
    client.send(body.as_bytes());
    while head_was_read.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
    webhook.signal(Signal::SIGCONT);
    assert_admitted(&client.response(), "DeadlineExceeded");
    assert_eq!(webhook.metric(&shed("DeadlineExceeded")), Some(1.0));
    assert_eq!(webhook.metric(&unprocessed("DeadlineExceeded")), Some(1.0));
}

#[test]
fn strict_means_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("config.yaml");
    std::fs::write(&config, "strictness: deny\n").expect("written");
    let config = config.to_str().expect("text");
    let webhook = Webhook::start(&["--review-timeout", "100ms", "--config", config]);
    let body = ordered_review("0a1b");
    let mut client = webhook.client();
    client.head("POST", "/mutate", body.len());
    client.send(&body.as_bytes()[..body.len() - 1]);
    let answer = client.response().json();
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["code"], 504);
    assert_eq!(webhook.metric(&unprocessed("BodyTimeout")), Some(1.0));
}
