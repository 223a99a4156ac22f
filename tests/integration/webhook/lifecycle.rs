//! Start and graceful shutdown.

use nix::sys::signal::Signal;

use crate::harness::{Webhook, review};

#[test]
fn health() {
    let webhook = Webhook::start(&[]);
    assert_eq!(webhook.health("/livez").0, 200);
    assert_eq!(webhook.health("/healthz").0, 200);
    assert_eq!(webhook.health("/readyz").0, 200);
    assert_eq!(webhook.health("/mutate").0, 404);
}

#[test]
fn answers_reviews_while_draining() {
    let mut webhook = Webhook::start(&["--drain-delay", "1m"]);
    let body = review().to_string();
    let mut client = webhook.client();
    assert_eq!(client.post("/mutate", body.as_bytes()).header("connection"), None);
    webhook.signal(Signal::SIGTERM);
    webhook.logged("draining");
    let (status, text) = webhook.health("/readyz");
    assert_eq!((status, text.as_str()), (503, "draining\n"));
    assert_eq!(webhook.health("/livez").0, 200);
    let response = client.post("/mutate", body.as_bytes());
    assert_eq!(response.status, 200);
    assert_eq!(response.header("connection"), Some("close"));
    client.expect_closed();
    assert_eq!(webhook.client().post("/mutate", body.as_bytes()).status, 200);
    webhook.signal(Signal::SIGTERM);
    webhook.logged("stopping already");
    assert_eq!(webhook.review(&review()).status, 200, "a second SIGTERM changes nothing");
    webhook.signal(Signal::SIGINT);
    assert_eq!(webhook.ended().code(), Some(1), "a SIGINT is of someone in a hurry");
}

#[test]
fn completes_requests_in_flight_before_it_stops() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut webhook = Webhook::start(&[]);
        let body = review().to_string();
        let (first, rest) = body.as_bytes().split_at(100);
        let mut busy = webhook.client();
        busy.head("POST", "/mutate", body.len());
        busy.send(first);
        let mut idle = webhook.client();
        assert_eq!(idle.post("/mutate", body.as_bytes()).status, 200);
        webhook.metric_becomes("swansong_requests_in_flight", 1.0);

        webhook.signal(signal);
        idle.expect_closed();
        webhook.signal(Signal::SIGTERM);
        webhook.logged("stopping already");
        busy.send(rest);
        let response = busy.response();
        assert_eq!(response.status, 200);
        assert_eq!(response.header("connection"), Some("close"));
        busy.expect_closed();
        assert!(webhook.ended().success());
        assert!(webhook.log.iter().any(|line| line["message"] == "stopped"), "{:#?}", webhook.log);
    }
}

#[test]
fn closes_requests_that_exceed_the_drain_timeout() {
    let mut webhook = Webhook::start(&["--drain-timeout", "50ms", "--review-timeout", "1h"]);
    let mut client = webhook.client();
    client.head("POST", "/mutate", 1000);
    webhook.metric_becomes("swansong_requests_in_flight", 1.0);
    webhook.signal(Signal::SIGTERM);
    assert!(webhook.ended().success());
    assert!(webhook.log.iter().any(|line| line["level"] == "WARN"), "{:#?}", webhook.log);
}
