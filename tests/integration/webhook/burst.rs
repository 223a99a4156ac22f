//! Many reviews at a time: all are answered, and the metrics add up.

use std::sync::{Arc, Barrier};
use std::thread;

use crate::client::Client;
use crate::harness::{Webhook, ordered_review};

const REVIEWS: usize = 500;

/// Every series of a counter, added up.
fn sum(text: &str, name: &str, needle: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(needle));
    lines.map(|line| line.rsplit_once(' ').expect("a value").1.parse::<f64>().expect("a number")).sum()
}

#[test]
fn five_hundred_reviews_at_once_are_all_answered_and_all_counted() {
    let webhook = Webhook::start(&["--body-memory", "8", "--review-timeout", "10s"]);
    let start = Arc::new(Barrier::new(REVIEWS));
    let clients: Vec<_> = (0..REVIEWS)
        .map(|number| {
            let (address, certificate) = (webhook.address.clone(), webhook.pair.certificate.clone());
            let start = Arc::clone(&start);
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || {
                    let mut client = Client::connect(&address, &certificate);
                    let uid = format!("uid-{number}");
                    let mut body = ordered_review(&uid).into_bytes();
                    // Each tenth is large, and all of those together have more than there is room for.
                    if number % 10 == 0 {
                        body.resize(1 << 20, b' ');
                    }
                    start.wait();
                    let answer = client.post("/mutate?timeout=30s", &body).json();
                    let response = &answer["response"];
                    assert_eq!((&response["uid"], &response["allowed"]), (&uid.into(), &true.into()));
                    let injected = response.get("patch").is_some();
                    if !injected {
                        assert_eq!(response["auditAnnotations"]["failed"], "Overloaded");
                        assert!(response["warnings"][0].is_string());
                    }
                    assert!(injected || number % 10 == 0, "small reviews are never shed");
                    injected
                })
                .expect("a thread")
        })
        .collect();
    let injected = clients.into_iter().map(|client| client.join().expect("answered"));
    let injected = injected.filter(|injected| *injected).count();
    let (_, text) = webhook.health("/metrics");
    let count = |name, needle| sum(&text, name, needle);
    #[expect(clippy::cast_precision_loss, reason = "500 is exact")]
    let (all, injected) = (REVIEWS as f64, injected as f64);
    assert!(injected >= 450.0, "{injected}");
    let same = |left: f64, right: f64| assert!((left - right).abs() < 0.5, "{left} is not {right}:\n{text}");
    same(count("swansong_reviews_total", ""), all);
    same(count("swansong_reviews_total", "result=\"injected\""), injected);
    same(count("swansong_reviews_total", "result=\"shed\""), all - injected);
    same(count("swansong_reviews_unprocessed_total", ""), all - injected);
    same(count("swansong_review_warnings_total", "reason=\"Overloaded\""), all - injected);
    same(count("swansong_requests_refused_total", ""), 0.0);
    webhook.metric_becomes("swansong_connections", 0.0);
    webhook.metric_becomes("swansong_requests_in_flight", 0.0);
    webhook.metric_becomes("swansong_large_body_bytes", 0.0);
}
