//! The measurements themselves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::client::{Run, closed_loop, open_loop};
use crate::servers::{self, Server};
use swansong_bench_support::Connection;

/// An AdmissionReview of a Pod as ascend-operator makes it.
const REVIEW: &str = include_str!("review.json");

/// Servers in the order of the table.
pub(crate) const SERVERS: [&str; 3] = ["floor", "tree", "swansong"];

/// One server in one round.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Reviews a second over 16 connections, closed loop.
    pub(crate) rate: f64,
    /// Server CPU a review in the closed loop, microseconds.
    pub(crate) cpu_us: f64,
    /// Latency at 1,000 reviews a second, open loop, microseconds.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// Resident memory after the load, MiB.
    pub(crate) resident_mib: f64,
    /// From exec to the first answer, milliseconds.
    pub(crate) start_ms: f64,
}

/// Samples by server, in the order of [`SERVERS`].
pub(crate) type Results = Vec<(&'static str, Vec<Sample>)>;

/// Measures every server in interleaved rounds.
pub(crate) fn all(quick: bool) -> anyhow::Result<Results> {
    let (rounds, time) = if quick { (1, Duration::from_secs(1)) } else { (3, Duration::from_secs(5)) };
    let directory = tempfile::tempdir()?;
    let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(&certificate, issued.cert.pem())?;
    std::fs::write(&key, issued.signing_key.serialize_pem())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate)?)?;
    let tls = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = Arc::new(tls);

    let mut results: Results = SERVERS.iter().map(|name| (*name, Vec::new())).collect();
    for round in 1..=rounds {
        for (name, samples) in &mut results {
            eprintln!("round {round} of {rounds}: {name}");
            let server = Server::start(servers::command(name, &certificate, &key)?)?;
            pin_to_core_1()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let sample = tokio::task::LocalSet::new().block_on(&runtime, sample(&server, &tls, time));
            samples.push(sample.with_context(|| format!("measuring {name}"))?);
            unpin()?;
        }
    }
    Ok(results)
}

async fn sample(server: &Server, tls: &Arc<rustls::ClientConfig>, time: Duration) -> anyhow::Result<Sample> {
    let request = request(REVIEW.trim_end());
    let mut connection = Connection::open(&server.address, Arc::clone(tls)).await?;
    let answer = connection.exchange(&request).await?;
    let started = server.started.elapsed();
    let answer: serde_json::Value = serde_json::from_slice(answer)?;
    ensure!(answer["response"]["allowed"] == true, "not allowed: {answer}");

    closed_loop(&server.address, tls, Arc::clone(&request), 16, time / 5).await?;
    let cpu = server.cpu()?;
    let closed = closed_loop(&server.address, tls, Arc::clone(&request), 16, time).await?;
    let cpu = server.cpu()?.saturating_sub(cpu);
    let mut open = open_loop(&server.address, tls, request, 1000, time).await?;
    Ok(Sample {
        rate: per_second(&closed),
        cpu_us: micros(cpu) / count(&closed),
        p50_us: percentile(&mut open, 0.5),
        p99_us: percentile(&mut open, 0.99),
        p999_us: percentile(&mut open, 0.999),
        #[allow(clippy::cast_precision_loss, reason = "memory of a process is far below 2^52 bytes")]
        resident_mib: server.resident()? as f64 / f64::from(1 << 20),
        start_ms: micros(started) / 1e3,
    })
}

fn request(body: &str) -> Arc<[u8]> {
    format!("POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
        .into()
}

#[allow(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 requests")]
fn count(run: &Run) -> f64 {
    run.latencies.len() as f64
}

fn per_second(run: &Run) -> f64 {
    count(run) / run.elapsed.as_secs_f64()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is an index")]
fn percentile(run: &mut Run, share: f64) -> f64 {
    run.latencies.sort_unstable();
    let index = (count(run) * share) as usize;
    run.latencies.get(index).copied().map_or(f64::NAN, micros)
}

/// The servers have core 0 to themselves.
fn pin_to_core_1() -> anyhow::Result<()> {
    run_on(&[1]).context("a second core is needed for the generator")
}

/// A server inherits where its parent may run, so that the next one must find core 0 allowed.
fn unpin() -> anyhow::Result<()> {
    run_on(&[0, 1])
}

fn run_on(cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}
