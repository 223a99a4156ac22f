//! Connections that come, go and break off: nothing of them stays. The long version is `make soak`.

use std::io::Write;
use std::net::TcpStream;

use crate::client::Client;
use crate::harness::{Webhook, ordered_review};

const ROUNDS: u32 = 50;

#[test]
fn connections_that_break_off_at_any_point_leave_nothing_behind() {
    let webhook = Webhook::start(&[]);
    let body = ordered_review("0a1b").into_bytes();
    let mut kept = webhook.client();
    assert_eq!(kept.post("/mutate", &body).status, 200);
    let before = webhook.open_files();
    for _ in 0..ROUNDS {
        // Not a word; the beginning of a handshake; a handshake; half a head; half a body; a whole review.
        drop(TcpStream::connect(&webhook.address).expect("connected"));
        let mut half = TcpStream::connect(&webhook.address).expect("connected");
        half.write_all(&[22, 3, 1, 2, 0, 1]).expect("sent");
        drop(half);
        drop(webhook.client());
        webhook.client().send(b"POST /mut");
        let mut half: Client = webhook.client();
        half.head("POST", "/mutate", body.len());
        half.send(&body[..body.len() / 2]);
        drop(half);
        assert_eq!(webhook.client().post("/mutate", &body).status, 200);
    }
    let rounds = f64::from(ROUNDS);
    webhook.metric_becomes("swansong_connections_accepted_total", 1.0 + 6.0 * rounds);
    webhook.metric_becomes(r#"swansong_tls_handshake_failures_total{cause="closed"}"#, 2.0 * rounds);
    webhook.metric_becomes("swansong_tls_handshakes_in_progress", 0.0);
    webhook.metric_becomes("swansong_connections", 1.0);
    webhook.metric_becomes("swansong_requests_in_flight", 0.0);
    webhook.metric_becomes(r#"swansong_reviews_unprocessed_total{reason="BodyIncomplete"}"#, rounds);
    webhook.metric_becomes(r#"swansong_reviews_total{kind="Pod",result="injected",reason=""}"#, 1.0 + rounds);
    // The connection of the scrape itself may just be closing.
    webhook.until("open files", || webhook.open_files() == before);
    assert_eq!(kept.post("/mutate", &body).status, 200);
}
