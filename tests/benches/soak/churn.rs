//! Connections that come, go and break off: nothing of them stays.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::process::{Tls, Webhook, mib, request};
use crate::{Finding, setting};
use swansong_bench_support::Connection;

const LANES: usize = 8;
const FIRST: usize = 3_000;

/// The ways in which a connection may end, one after the other.
const WAYS: usize = 6;

pub(crate) async fn run(webhook: &Webhook, tls: &Tls) -> anyhow::Result<Vec<Finding>> {
    let all = setting("SWANSONG_SOAK_CONNECTIONS", 60_000)?;
    eprintln!("{all} connections, of which five in six break off");
    churn(webhook, tls, FIRST).await?;
    webhook.quiet().await?;
    // The connection on which it was asked for its metrics may be closing still.
    let (files, first) = (webhook.files_at_most(0).await?, webhook.resident()?);
    churn(webhook, tls, all).await?;
    webhook.quiet().await?;
    let (files_after, last) = (webhook.files_at_most(files).await?, webhook.resident()?);
    Ok(vec![
        Finding::new(
            format!("memory after {all} connections, {} after {FIRST}", mib(first)),
            mib(last),
            "10 % more",
            last * 10 <= first * 11,
        ),
        Finding::new(
            "open files after them",
            format!("{files_after}"),
            format!("{files}"),
            files_after <= files,
        ),
    ])
}

async fn churn(webhook: &Webhook, tls: &Tls, number: usize) -> anyhow::Result<()> {
    let request = request(include_bytes!("../load/review.json"));
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..LANES {
        let (address, client, request) =
            (webhook.address.clone(), Arc::clone(&tls.client), Arc::clone(&request));
        tasks.spawn_local(async move {
            for index in (lane..number).step_by(LANES) {
                one(index % WAYS, &address, &client, &request).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(end) = tasks.join_next().await {
        end??;
    }
    Ok(())
}

async fn one(
    way: usize,
    address: &str,
    tls: &Arc<rustls::ClientConfig>,
    request: &[u8],
) -> anyhow::Result<()> {
    match way {
        // Not a word.
        0 => drop(TcpStream::connect(address).await?),
        // The beginning of a handshake.
        1 => TcpStream::connect(address).await?.write_all(&[22, 3, 1, 2, 0, 1]).await?,
        // A handshake and no request.
        2 => drop(Connection::open(address, Arc::clone(tls)).await?),
        // Half a head, half a body.
        3 | 4 => {
            let mut connection = Connection::open(address, Arc::clone(tls)).await?;
            let part = if way == 3 { &request[..20] } else { &request[..request.len() / 2] };
            connection.stream.write_all(part).await?;
            connection.stream.flush().await?;
        }
        _ => {
            Connection::open(address, Arc::clone(tls)).await?.exchange(request).await?;
        }
    }
    Ok(())
}
