//! Memory over many reviews.

use std::sync::Arc;

use anyhow::ensure;

use crate::process::{Tls, Webhook, mib, request};
use crate::{Finding, setting};
use swansong_bench_support::Connection;

const REVIEW: &str = include_str!("../load/review.json");
const CONNECTIONS: usize = 16;
const FIRST: usize = 10_000;

pub(crate) async fn run(webhook: &Webhook, tls: &Tls) -> anyhow::Result<Vec<Finding>> {
    let all = setting("SWANSONG_SOAK_REVIEWS", 1_000_000)?;
    ensure!(all > FIRST, "SWANSONG_SOAK_REVIEWS must be more than {FIRST}");
    eprintln!("{all} reviews");
    let request = request(REVIEW.as_bytes());
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Connection::open(&webhook.address, Arc::clone(&tls.client)).await?);
    }
    connections = send(connections, &request, FIRST).await?;
    let first = webhook.resident()?;
    send(connections, &request, all - FIRST).await?;
    let last = webhook.resident()?;
    let injected = webhook.metric("swansong_reviews_total", "result=\"injected\"")?;
    Ok(vec![
        Finding::new(
            format!("memory after {all} reviews, {} after {FIRST}", mib(first)),
            mib(last),
            "10 % more",
            last * 10 <= first * 11,
        ),
        Finding::new(
            "reviews injected",
            format!("{injected:.0}"),
            format!("{all}"),
            (injected - f64::from(u32::try_from(all)?)).abs() < 0.5,
        ),
    ])
}

/// So many requests in all, over all connections at a time.
async fn send(
    connections: Vec<Connection>,
    request: &Arc<[u8]>,
    number: usize,
) -> anyhow::Result<Vec<Connection>> {
    let lanes = connections.len();
    let mut tasks = tokio::task::JoinSet::new();
    for (lane, mut connection) in connections.into_iter().enumerate() {
        let request = Arc::clone(request);
        let own = number / lanes + usize::from(lane < number % lanes);
        tasks.spawn_local(async move {
            for _ in 0..own {
                connection.exchange(&request).await?;
            }
            anyhow::Ok(connection)
        });
    }
    let mut connections = Vec::new();
    while let Some(connection) = tasks.join_next().await {
        connections.push(connection??);
    }
    Ok(connections)
}
