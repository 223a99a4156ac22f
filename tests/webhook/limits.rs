//! Clients that ask for too much or take too long.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::harness::{Webhook, review, review_of};

const MIB: usize = 1 << 20;

#[test]
fn a_review_of_almost_3_mb_is_answered() {
    let webhook = Webhook::start(&[]);
    let mut body = review();
    body["request"]["object"]["metadata"]["annotations"]["blob"] = json!("x".repeat(1_450_000));
    body["request"]["oldObject"] = body["request"]["object"].clone();
    let body = body.to_string();
    assert!(body.len() > 2_900_000);
    let answer = webhook.client().post("/mutate", body.as_bytes()).json();
    assert!(answer["response"]["patch"].is_string());
}

#[test]
fn a_body_beyond_8_mib_is_refused_before_it_is_sent() {
    let webhook = Webhook::start(&[]);
    let mut client = webhook.client();
    client.head("POST", "/mutate", 8 * MIB + 1);
    let response = client.response();
    assert_eq!(response.status, 413);
    assert_eq!(response.header("connection"), Some("close"));
    client.expect_closed();
    assert_eq!(webhook.metric(r#"swansong_requests_refused_total{cause="too_large"}"#), Some(1.0));
}

#[test]
fn a_body_of_8_mib_is_read_to_its_end() {
    let webhook = Webhook::start(&[]);
    let mut body = review().to_string().into_bytes();
    body.resize(8 * MIB, b' ');
    assert!(webhook.client().post("/mutate", &body).json()["response"]["patch"].is_string());
}

#[test]
fn a_body_of_untold_length_is_cut_at_8_mib() {
    let webhook = Webhook::start(&[]);
    let mut client = webhook.client();
    client.send(b"POST /mutate HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut chunk = b"10000\r\n".to_vec();
    chunk.resize(chunk.len() + 0x1_0000, b' ');
    chunk.extend_from_slice(b"\r\n");
    // One chunk more than is allowed: the answer comes when it is read.
    for _ in 0..=(8 * MIB / 0x1_0000) {
        if client.try_send(&chunk).is_err() {
            break;
        }
    }
    webhook.metric_becomes(r#"swansong_requests_refused_total{cause="too_large"}"#, 1.0);
    webhook.metric_becomes("swansong_connections", 0.0);
}

#[test]
fn a_chunked_review_is_answered() {
    let webhook = Webhook::start(&[]);
    let mut client = webhook.client();
    client.send(b"POST /mutate HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n");
    let body = review().to_string();
    for part in body.as_bytes().chunks(100) {
        client.send(format!("{:x}\r\n", part.len()).as_bytes());
        client.send(part);
        client.send(b"\r\n");
    }
    client.send(b"0\r\n\r\n");
    assert!(client.response().json()["response"]["patch"].is_string());
}

#[test]
fn a_slow_body_is_not_waited_for() {
    let webhook = Webhook::start(&["--body-timeout", "100ms"]);
    let mut client = webhook.client();
    let start = Instant::now();
    client.head("POST", "/mutate", 1000);
    client.send(b"{");
    let response = client.response();
    assert_eq!(response.status, 408);
    client.expect_closed();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(webhook.metric(r#"swansong_requests_refused_total{cause="too_slow"}"#), Some(1.0));
}

#[test]
fn a_silent_connection_is_closed() {
    let webhook = Webhook::start(&["--idle-timeout", "100ms"]);
    let mut client = webhook.client();
    client.send(b"POST /mut");
    client.expect_closed();
    let mut idle = webhook.client();
    assert_eq!(idle.post("/mutate", review().to_string().as_bytes()).status, 200);
    idle.expect_closed();
}

#[test]
fn large_bodies_that_stall_do_not_use_up_the_memory() {
    let webhook = Webhook::start(&["--body-timeout", "20s"]);
    // 64 MiB for all of them together.
    let mut stalled: Vec<Client> = (0..8).map(|_| webhook.client()).collect();
    for client in &mut stalled {
        client.head("POST", "/mutate", 8 * MIB);
    }
    webhook.metric_becomes("swansong_requests_in_flight", 8.0);
    let mut client = webhook.client();
    client.head("POST", "/mutate", MIB);
    assert_eq!(client.response().status, 503);
    assert_eq!(webhook.review(&review()).status, 200, "small ones go on");
    drop(stalled);
    webhook.metric_becomes("swansong_requests_in_flight", 0.0);
    let mut body = review().to_string().into_bytes();
    body.resize(MIB, b' ');
    assert_eq!(webhook.client().post("/mutate", &body).status, 200);
}

#[test]
fn newcomers_wait_for_a_place() {
    let webhook = Webhook::start(&["--max-connections", "1"]);
    let first = webhook.client();
    let mut second = TcpStream::connect(&webhook.address).expect("the kernel accepts");
    second.write_all(b"no TLS").expect("sent");
    webhook.metric_becomes("swansong_connections_accepted_total", 1.0);
    drop(first);
    // The second is heard now, and what it said is no TLS.
    let mut alert = Vec::new();
    let _ = second.read_to_end(&mut alert);
    webhook.metric_becomes("swansong_tls_handshake_failures_total", 1.0);
    webhook.metric_becomes("swansong_connections_accepted_total", 2.0);
}

#[test]
fn a_client_that_goes_away_is_counted_and_forgotten() {
    let webhook = Webhook::start(&[]);
    let mut client = webhook.client();
    client.head("POST", "/mutate", 1000);
    client.send(b"{");
    webhook.metric_becomes("swansong_requests_in_flight", 1.0);
    drop(client);
    webhook.metric_becomes("swansong_requests_in_flight", 0.0);
    webhook.metric_becomes("swansong_connections", 0.0);
    assert_eq!(webhook.review(&review_of(&json!({}))).status, 200);
}
