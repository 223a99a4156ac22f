//! Memory with the largest Pods in parallel, more of them than there is room for, beside clients that stall.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::Finding;
use crate::process::{Tls, Webhook, mib, request};
use swansong_bench_support::Connection;

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 20;
const STALLED: usize = 400;

/// 10 MiB at rest, 64 MiB of room for large reviews, and what 464 connections hold with their buffers and the allocator
/// with its own. The manifests allow the container 256 MiB.
const BOUND: u64 = 160 << 20;

pub(crate) async fn run(webhook: &Webhook, tls: &Tls) -> anyhow::Result<Vec<Finding>> {
    eprintln!(
        "{ROUNDS} rounds of {CONNECTIONS} Pods of 1.5 MB at a time, beside {STALLED} clients that stall"
    );
    let mut review: Value = serde_json::from_str(include_str!("../load/review.json"))?;
    review["request"]["object"]["metadata"]["annotations"]["blob"] = json!("x".repeat(1_500_000));
    let body = review.to_string();
    // The uid has to come first, as an API server writes it; a tree keeps the order.
    let request = request(body.as_bytes());
    let stalled = stall(webhook, tls).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (request, client, address) =
            (Arc::clone(&request), Arc::clone(&tls.client), webhook.address.clone());
        tasks.spawn_local(async move {
            let mut connection = Connection::open(&address, client).await?;
            let mut injected = 0_usize;
            for _ in 0..ROUNDS {
                let answer: Value = serde_json::from_slice(connection.exchange(&request).await?)?;
                anyhow::ensure!(answer["response"]["allowed"] == true, "{answer}");
                injected += usize::from(answer["response"]["patch"].is_string());
            }
            anyhow::Ok(injected)
        });
    }
    let mut injected = 0;
    while let Some(own) = tasks.join_next().await {
        injected += own??;
    }
    drop(stalled);
    webhook.quiet().await?;
    let shed = webhook.metric("swansong_reviews_total", "result=\"shed\"")?;
    let all = CONNECTIONS * ROUNDS;
    let sum = f64::from(u32::try_from(injected)?) + shed - f64::from(u32::try_from(all)?);
    let peak = webhook.peak()?;
    Ok(vec![
        Finding::new(
            format!("most memory with {CONNECTIONS} Pods of 1.5 MB at a time and {STALLED} stalled clients"),
            mib(peak),
            mib(BOUND),
            peak <= BOUND,
        ),
        Finding::new(
            "large reviews answered: injected + admitted unchanged for lack of memory",
            format!("{injected} + {shed:.0}"),
            format!("{all}"),
            sum.abs() < 0.5,
        ),
    ])
}

/// Clients that send a head and half of a small body, as long as they are held; closed ones are replaced.
async fn stall(webhook: &Webhook, tls: &Tls) -> anyhow::Result<tokio::task::JoinSet<()>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..STALLED {
        let (address, client) = (webhook.address.clone(), Arc::clone(&tls.client));
        tasks.spawn_local(async move {
            loop {
                if let Ok(mut connection) = Connection::open(&address, Arc::clone(&client)).await {
                    let head = b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16384\r\n\r\n";
                    let _ = connection.stream.write_all(head).await;
                    let _ = connection.stream.write_all(&[b' '; 8192]).await;
                    let _ = connection.stream.flush().await;
                    // Longer than the webhook waits.
                    tokio::time::sleep(Duration::from_secs(4)).await;
                }
            }
        });
    }
    // All of them are there before the measurement begins.
    for _ in 0..200 {
        if webhook.metric("swansong_requests_in_flight", "")? > 300.0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(tasks)
}
