//! A load generator: loops over connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use swansong_bench_support::Connection;

/// Latencies of every request of one run.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) latencies: Vec<Duration>,
    pub(crate) elapsed: Duration,
}

/// `connections` loops, each sending as soon as it has its answer.
pub(crate) async fn closed_loop(
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
    request: Arc<[u8]>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<Run> {
    let mut loops = tokio::task::JoinSet::new();
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Connection::open(address, Arc::clone(tls)).await?);
    }
    let start = Instant::now();
    for mut connection in open {
        let request = Arc::clone(&request);
        loops.spawn_local(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < time {
                let sent = Instant::now();
                connection.exchange(&request).await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut run = Run::default();
    while let Some(latencies) = loops.join_next().await {
        run.latencies.extend(latencies??);
    }
    run.elapsed = start.elapsed();
    Ok(run)
}

/// Requests at a fixed rate, regardless of the responses. A request that its lane's last answer held up counts from when it
/// was due; one that was sent on time counts from then, so that the timer's own millisecond isn't counted in.
pub(crate) async fn open_loop(
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
    request: Arc<[u8]>,
    rate: u32,
    time: Duration,
) -> anyhow::Result<Run> {
    const CONNECTIONS: u32 = 16;
    let start = Instant::now() + Duration::from_millis(100);
    let mut loops = tokio::task::JoinSet::new();
    for lane in 0..CONNECTIONS {
        let mut connection = Connection::open(address, Arc::clone(tls)).await?;
        let request = Arc::clone(&request);
        loops.spawn_local(async move {
            let mut latencies = Vec::new();
            for number in 0.. {
                let due = start + Duration::from_secs(1) / rate * (lane + number * CONNECTIONS);
                if due - start >= time {
                    break;
                }
                let held_up = Instant::now() > due;
                tokio::time::sleep_until(due.into()).await;
                let counted_from = if held_up { due } else { Instant::now() };
                connection.exchange(&request).await?;
                latencies.push(counted_from.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut run = Run::default();
    while let Some(latencies) = loops.join_next().await {
        run.latencies.extend(latencies??);
    }
    run.elapsed = start.elapsed();
    Ok(run)
}
