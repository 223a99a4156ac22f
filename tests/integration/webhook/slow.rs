//! Clients that take their time: each has some, and none takes that of others.

use std::time::Duration;

use crate::harness::{Webhook, closed, review};

#[test]
fn a_head_that_has_begun_must_be_whole_soon() {
    // A connection may still be idle for two minutes.
    let webhook = Webhook::start(&["--client-timeout", "100ms"]);
    let body = review().to_string();
    let mut idle = webhook.client();
    assert_eq!(idle.post("/mutate", body.as_bytes()).status, 200);
    let mut half = webhook.client();
    half.send(b"POST /mut");
    half.expect_closed();
    let mut later = webhook.client();
    assert_eq!(later.post("/mutate", body.as_bytes()).status, 200);
    later.send(b"P");
    later.expect_closed();
    webhook.metric_becomes(&closed("slow_head"), 2.0);
    assert_eq!(idle.post("/mutate", body.as_bytes()).status, 200, "an idle connection isn't slow");
    assert_eq!(webhook.metric(&closed("idle")), Some(0.0));
}

#[test]
fn a_head_that_drips_has_no_more_time() {
    let webhook = Webhook::start(&["--client-timeout", "300ms"]);
    let mut client = webhook.client();
    let mut sent = 0;
    // Far more bytes than there is time for.
    while client.try_send(b"P").is_ok() {
        sent += 1;
        assert!(sent < 2_000, "the head drips on");
        std::thread::sleep(Duration::from_millis(10));
    }
    webhook.metric_becomes(&closed("slow_head"), 1.0);
    webhook.metric_becomes("swansong_connections", 0.0);
}

#[test]
fn an_idle_connection_is_closed_after_a_long_time_only() {
    let webhook = Webhook::start(&["--idle-timeout", "100ms"]);
    let mut never = webhook.client();
    never.expect_closed();
    let mut once = webhook.client();
    assert_eq!(once.post("/mutate", review().to_string().as_bytes()).status, 200);
    once.expect_closed();
    webhook.metric_becomes(&closed("idle"), 2.0);
}

#[test]
fn closes_a_connection_whose_client_does_not_read() {
    let webhook = Webhook::start(&["--client-timeout", "300ms"]);
    let body = review().to_string();
    let mut client = webhook.client();
    let request = format!("POST /mutate HTTP/1.1\r\nHost: w\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let requests = request.repeat(64);
    // Until what the kernel holds for both sides is full, and the webhook reads no more.
    let mut sent = 0;
    while client.try_send(requests.as_bytes()).is_ok() {
        sent += 1;
        assert!(sent < 10_000, "answers are kept without end");
    }
    webhook.metric_becomes(&closed("slow_reader"), 1.0);
    webhook.metric_becomes("swansong_connections", 0.0);
    webhook.metric_becomes("swansong_requests_in_flight", 0.0);
}
