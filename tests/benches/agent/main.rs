//! Memory and CPU of an idle agent with 5,000 processes on the host.
//!
//! The real program runs against a real API server with the machine's own `/proc`. In the first case the ports of a job are
//! free; in the second one is in use, and each round checks its owner. One injected Pod is bound to the node, so the
//! preload check reads all processes too.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use procfs::process::Process;
use serde_json::json;
use swansong_bench_support::ChildGuard;
use swansong_testcluster::{Cluster, Tier};

const PROCESSES: usize = 5_000;
const NODE: &str = "bench-agent";

fn main() -> anyhow::Result<ExitCode> {
    // `cargo test --benches` runs this too; measuring is only asked for by `cargo bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let quick = std::env::var_os("SWANSONG_BENCH_QUICK").is_some();
    let window = Duration::from_secs(if quick { 30 } else { 120 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(async {
        let cluster = Cluster::start(Tier::Api).await?;
        prepare(&cluster).await?;
        anyhow::Ok(cluster)
    })?;
    let sleepers: Vec<ChildGuard> = (0..PROCESSES).map(|_| sleeper()).collect::<anyhow::Result<_>>()?;
    let listener = TcpListener::bind("127.0.0.1:0").context("no port")?;
    let used = listener.local_addr()?.port();
    println!(
        "| {PROCESSES} processes, and | anonymous MiB | RSS MiB | CPU, % of a core |\n|---|---|---|---|"
    );
    for (case, ports) in
        [("no port in use", "[1]".to_owned()), ("a port of a job in use", format!("[{used}]"))]
    {
        let Cost { anonymous, resident, cpu } = measure(&cluster, &ports, window)?;
        println!("| {case} | {anonymous:.1} | {resident:.1} | {cpu:.2} |");
    }
    drop(sleepers);
    runtime.block_on(cluster.stop())?;
    Ok(ExitCode::SUCCESS)
}

/// A Node, and an injected Pod bound to it whose container has no process here.
async fn prepare(cluster: &Cluster) -> anyhow::Result<()> {
    let client = cluster.client().await?;
    let node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await?;
    let namespace = cluster.namespace("bench").await?;
    let record = json!({"version": 1, "containers": {"ascend": {"preload": {"libraries": ["/c/libmspti.so", "/t/libtaskd.so"]}}}}).to_string();
    let pod = json!({
        "metadata": {"name": "job", "annotations": {"swansong.dev/injected": record}},
        "spec": {"nodeName": NODE, "containers": [{"name": "ascend", "image": "i", "env": [{"name": "LD_PRELOAD", "value": "/c/libmspti.so:/t/libtaskd.so"}]}]},
    });
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let status = json!({"status": {"containerStatuses": [{
        "name": "ascend", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
        "containerID": "containerd://5a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef",
    }]}});
    pods.patch_status("job", &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}

fn sleeper() -> anyhow::Result<ChildGuard> {
    let child = Command::new("sleep").arg("3600").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    Ok(ChildGuard(child.context("sleep can't be started")?))
}

/// Memory in MiB, CPU in percent of a core.
struct Cost {
    anonymous: f64,
    resident: f64,
    cpu: f64,
}

fn measure(cluster: &Cluster, ports: &str, window: Duration) -> anyhow::Result<Cost> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("agent.yaml");
    fs::write(&config, format!("ports: {ports}\nclusterd: {{dial: false}}\n"))?;
    let agent = Command::new(env!("CARGO_BIN_EXE_swansong"))
        .args(["agent", "--health-listen", "127.0.0.1:0", "--node", NODE, "--config"])
        .arg(&config)
        .env("KUBECONFIG", cluster.kubeconfig())
        .stderr(Stdio::null())
        .spawn()
        .context("the agent can't be started")?;
    let agent = ChildGuard(agent);
    let process = Process::new(agent.0.id().cast_signed())?;
    // The agent is idle some seconds after its start.
    sleep(Duration::from_secs(15));
    let (before, begun) = (cpu(&process)?, Instant::now());
    sleep(window);
    let share = cpu(&process)?.saturating_sub(before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let status = process.status()?;
    #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
    let mebibytes = |kilobytes: u64| kilobytes as f64 / 1024.0;
    Ok(Cost {
        anonymous: mebibytes(status.rssanon.context("no RssAnon")?),
        resident: mebibytes(status.vmrss.context("no VmRSS")?),
        cpu: share * 100.0,
    })
}

/// The kernel counts in ticks of 10 ms.
fn cpu(process: &Process) -> anyhow::Result<Duration> {
    let stat = process.stat()?;
    Ok(Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second()))
}
