//! What the webhook costs: reviews a second, latency, CPU, memory and start-up, beside two peers on the same
//! machine in the same run.
//!
//! - `floor`: axum over rustls that reads the body and answers a constant; nothing can be cheaper.
//! - `tree`: the same, but the body is parsed into a generic `serde_json::Value` first, as a straightforward
//!   webhook does.
//!
//! Each server is pinned to core 0 and the generator to core 1; rounds are interleaved, medians reported. Times
//! differ from machine to machine, the ratios in a table hardly do. Run it with `make bench`.

mod client;
mod measure;
mod peers;
mod report;
mod servers;

use std::process::ExitCode;

use anyhow::Context;

fn main() -> anyhow::Result<ExitCode> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, certificate, key] = &arguments[..]
        && let Some(peer) = peers::Peer::named(mode)
    {
        return peers::serve(peer, certificate.as_ref(), key.as_ref()).map(|()| ExitCode::SUCCESS);
    }
    // `cargo test --benches` runs this too; measuring is only asked for by `cargo bench`.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let quick = std::env::var_os("SWANSONG_BENCH_QUICK").is_some();
    let results = measure::all(quick).context("the load benchmark failed")?;
    print!("{}", report::table(&results));
    Ok(ExitCode::SUCCESS)
}
