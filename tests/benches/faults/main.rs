//! How soon ClusterD has a fault, and what the agent costs in a flood of them.
//!
//! The real program against a real API server, a libdcmi.so and a ClusterD without NPUs. What is measured begins when the
//! driver has the event and ends when ClusterD has accepted it; the settle time, which is waited on purpose, is taken off.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, PostParams};
use procfs::process::Process;
use serde_json::json;
use swansong_bench_support::ChildGuard;
use swansong_fake_clusterd::{FakeClusterd, Settings};
use swansong_fake_dcmi::{Script, build};
use swansong_fixtures::mindcluster;
use swansong_testcluster::{Cluster, Tier};

const NODE: &str = "bench-faults";
const SETTLE: Duration = Duration::from_secs(1);
const CRITICAL: u8 = 3;
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> anyhow::Result<ExitCode> {
    // `cargo test --benches` runs this too; measuring is only asked for by `cargo bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let quick = std::env::var_os("SWANSONG_BENCH_QUICK").is_some();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let cluster = runtime.block_on(async {
        let cluster = Cluster::start(Tier::Api).await?;
        prepare(&cluster).await?;
        anyhow::Ok(cluster)
    })?;
    let clusterd = Arc::new(runtime.block_on(FakeClusterd::start(Settings::default()))?);
    let client = runtime.block_on(cluster.client())?;
    runtime.spawn(swansong_fake_clusterd::cluster::run(client, Arc::clone(&clusterd)));
    let host = tempfile::tempdir()?;
    let script = host_root(host.path())?;
    let agent = start(&cluster, host.path(), &clusterd)?;

    let mut delays = delays(&script, &clusterd, if quick { 20 } else { 60 })?;
    delays.sort_unstable();
    let part = |share: usize| delays[(delays.len() * share / 100).min(delays.len() - 1)];
    println!("| beyond the settle time | p50 ms | p99 ms | most ms |\n|---|---|---|---|");
    println!("| {} faults, one by one | {} | {} | {} |", delays.len(), part(50), part(99), part(100));

    let most = flood(&script, &agent, Duration::from_secs(if quick { 15 } else { 60 }))?;
    println!("\n| 10,000 events a minute | most RSS MiB | of which anonymous |\n|---|---|---|");
    for (name, rss, anonymous) in most {
        println!("| {name} | {rss:.1} | {anonymous:.1} |");
    }
    drop(agent);
    runtime.block_on(cluster.stop())?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// A Node and what the device plugin publishes of it.
async fn prepare(cluster: &Cluster) -> anyhow::Result<()> {
    let client = cluster.client().await?;
    let node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    maps.create(&PostParams::default(), &serde_json::from_value(mindcluster::device_info(NODE))?).await?;
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cluster-system"}});
    cluster.apply(&system.to_string()).await?;
    Ok(())
}

/// A host with nothing but a driver's library.
fn host_root(root: &Path) -> anyhow::Result<Script> {
    let libraries = root.join("usr/local/Ascend/driver/lib64/driver");
    for folder in ["proc", "dev"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::create_dir_all(&libraries)?;
    Ok(Script::beside(&build(&libraries)))
}

fn start(cluster: &Cluster, host: &Path, clusterd: &FakeClusterd) -> anyhow::Result<ChildGuard> {
    let config = host.join("agent.yaml");
    let state = host.join("state");
    fs::write(
        &config,
        format!(
            "npus: 8\ndriver: {{trust: anyone}}\nports: [1]\nclusterd: {{dial: false, address: \"{}\"}}\n\
             faults: {{enabled: true, settle: {}s, stateFolder: \"{}\", configMapNamespace: \"\"}}\n",
            clusterd.address(),
            SETTLE.as_secs(),
            state.display(),
        ),
    )?;
    let child = Command::new(env!("CARGO_BIN_EXE_swansong"))
        .args(["agent", "--health-listen", "127.0.0.1:0", "--node", NODE, "--log-level", "warn"])
        .arg("--host-root")
        .arg(host)
        .arg("--config")
        .arg(&config)
        .env("KUBECONFIG", cluster.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(ChildGuard(child))
}

/// For each fault the milliseconds from the driver's event to ClusterD, less the settle time.
fn delays(script: &Script, clusterd: &FakeClusterd, faults: u32) -> anyhow::Result<Vec<u64>> {
    let mut delays = Vec::new();
    // The first one waits for the agent to start.
    for number in 0..=faults {
        let (npu, code) = (number % 8, 0x8000_0000 + number);
        let at = millis();
        script.event(npu, code, CRITICAL, 1, "bench");
        let accepted = wait(clusterd, code, "occur")?;
        script.event(npu, code, CRITICAL, 0, "bench");
        wait(clusterd, code, "recover")?;
        if number > 0 {
            delays.push((accepted - at).saturating_sub(u64::try_from(SETTLE.as_millis())?));
        }
        // The agent sends at most one batch a second.
        sleep(Duration::from_millis(1100));
    }
    Ok(delays)
}

fn wait(clusterd: &FakeClusterd, code: u32, assertion: &str) -> anyhow::Result<u64> {
    let (end, part) = (Instant::now() + TEST_TIMEOUT, format!(".{code:X}."));
    while Instant::now() < end {
        let at = clusterd.with(|core, _| {
            let mut accepted = core.ledger().accepted.iter();
            let is_it = |accepted: &&swansong_fake_clusterd::ledger::AcceptedFault| {
                accepted.fault_id.contains(&part) && accepted.assertion == assertion
            };
            accepted.find(is_it).map(|accepted| accepted.at)
        });
        if let Some(at) = at {
            return Ok(at);
        }
        sleep(Duration::from_millis(2));
    }
    anyhow::bail!("ClusterD got no {assertion} of {code:X} within {TEST_TIMEOUT:?}")
}

/// The most memory that the agent and the process with the library had.
fn flood(
    script: &Script,
    agent: &ChildGuard,
    time: Duration,
) -> anyhow::Result<Vec<(&'static str, f64, f64)>> {
    let events = u32::try_from(time.as_secs() * 10_000 / 60)?;
    script.flood(events, 10_000, 0x9000_0000);
    let pid = i32::try_from(agent.0.id())?;
    let child = procfs::process::all_processes()?
        .filter_map(Result::ok)
        .find(|process| process.stat().is_ok_and(|stat| stat.ppid == pid))
        .context("no process with the library")?;
    let (agent, end) = (Process::new(pid)?, Instant::now() + time + Duration::from_secs(5));
    let mut most = [(0u64, 0u64); 2];
    while Instant::now() < end {
        for (process, most) in [&agent, &child].into_iter().zip(&mut most) {
            let status = process.status()?;
            most.0 = most.0.max(status.vmrss.unwrap_or(0));
            most.1 = most.1.max(status.rssanon.unwrap_or(0));
        }
        sleep(Duration::from_millis(100));
    }
    #[expect(clippy::cast_precision_loss, reason = "kilobytes of a process")]
    let mib = |kib: u64| kib as f64 / 1024.0;
    Ok(["agent", "process with the library"]
        .into_iter()
        .zip(most)
        .map(|(name, (rss, anonymous))| (name, mib(rss), mib(anonymous)))
        .collect())
}

fn millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or_default()
}
