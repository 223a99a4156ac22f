//! Clients that ask for too much or take too long.

use std::net::TcpStream;

use serde_json::json;

use crate::harness::{Webhook, closed, review, review_of};

const MIB: usize = 1 << 20;

#[test]
fn a_review_of_almost_3_mb_is_answered() {
    let webhook = Webhook::start(&[]);
    let mut body = review();
    body["request"]["object"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1_450_000)]);
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
fn a_body_of_undeclared_length_is_cut_at_8_mib() {
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
fn a_new_connection_evicts_the_longest_idle_one() {
    let webhook = Webhook::start(&["--max-connections", "2"]);
    let body = review().to_string();
    let mut busy = webhook.client();
    busy.head("POST", "/mutate", body.len());
    webhook.metric_becomes("swansong_requests_in_flight", 1.0);
    let mut idle = webhook.client();
    assert_eq!(idle.post("/mutate", body.as_bytes()).status, 200);

    let mut new = webhook.client();
    assert_eq!(new.post("/mutate", body.as_bytes()).status, 200);
    idle.expect_closed();
    busy.send(body.as_bytes());
    assert_eq!(busy.response().status, 200, "a busy connection isn't evicted");
    webhook.metric_becomes(&closed("evicted"), 1.0);
    webhook.metric_becomes("swansong_connections", 2.0);
}

#[test]
fn connections_without_a_handshake_do_not_block_others() {
    let webhook = Webhook::start(&[]);
    let body = review().to_string();
    let mut known = webhook.client();
    // More than the limit of handshakes.
    let flood: Vec<TcpStream> =
        (0..1200).map(|_| TcpStream::connect(&webhook.address).expect("the kernel accepts")).collect();
    webhook.metric_reaches("swansong_connections_accepted_total", 1000.0);
    assert_eq!(webhook.metric("swansong_connections"), Some(1.0));
    assert_eq!(known.post("/mutate", body.as_bytes()).status, 200, "an open connection isn't concerned");
    assert_eq!(webhook.review(&review()).status, 200, "a new one waits only for a handshake to time out");
    webhook.metric_becomes(r#"swansong_tls_handshake_failures_total{cause="timeout"}"#, 1200.0);
    webhook.metric_becomes("swansong_tls_handshakes_in_progress", 0.0);
    drop(flood);
}

#[test]
fn a_disconnected_client_leaves_nothing_behind() {
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
