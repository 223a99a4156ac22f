//! How long `swansong doctor` and `swansong status` take in a large cluster: docs/benchmarks.md.

use std::process::Output;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use swansong_demo::operator::{Addresses, pods, rank_zero_service};

use super::agents::Agent;
use super::objects::{self, NAMESPACE, NODES, SeenPod};
use super::world::World;
use super::{assert_healthy, checks};
use crate::support::swansong;

/// How many objects are created at once.
const CONCURRENT: usize = 16;
const AGENTS: &str = "swansong-agent";

/// The JSON of an object in which the first job has another name.
fn renamed(object: &Value, name: &str) -> Value {
    serde_json::from_str(&object.to_string().replace("bert", name)).unwrap()
}

async fn add_node(world: &World, name: String) -> (String, Agent) {
    let agent = Agent::start(world.address).await;
    world.create(objects::node(&name)).await;
    let mut device_plugin = swansong_fixtures::mindcluster::device_info(&name);
    device_plugin["metadata"]["namespace"] = "kube-system".into();
    world.create(device_plugin).await;
    let pod = format!("swansong-agent-{name}");
    world.run_pod_of("DaemonSet", AGENTS, "swansong-agent", &pod, Some(&name), agent.address.port()).await;
    (name, agent)
}

/// Creates a job with one Pod on each of the nodes, healthy in every respect.
async fn add_job(world: &World, name: &str, nodes: &[(String, Agent)]) {
    let mut job = renamed(&objects::job(), name);
    job["spec"]["replicaSpecs"]["Worker"]["replicas"] = (nodes.len() - 1).into();
    let job = world.create(job).await;
    let service = world.create(rank_zero_service(&job).unwrap().unwrap()).await;
    let addresses = Addresses::of(&service, None).unwrap();
    for object in objects::of_job(world.address) {
        world.create(renamed(&object, name)).await;
    }
    let group = format!("{name}-1");
    for ((rank, pod), (node, agent)) in pods(&job, &addresses).unwrap().into_iter().enumerate().zip(nodes) {
        let created = world.create(objects::scheduled(pod, rank, &group, node)).await;
        let name = created["metadata"]["name"].as_str().unwrap().to_owned();
        let uid = created["metadata"]["uid"].as_str().unwrap().to_owned();
        world.set_running(NAMESPACE, &name).await;
        agent.set(objects::agent_status(&[SeenPod {
            name,
            uid,
            address: world.address,
            is_first: rank == 0,
        }]));
    }
}

/// The shortest of three runs, and the last output.
async fn shortest(world: &World, arguments: &[&str]) -> (Duration, Output) {
    let mut shortest = None;
    let mut last = None;
    for _ in 0..3 {
        let mut command = swansong([]);
        command.args(arguments).env("KUBECONFIG", world.cluster.kubeconfig());
        let started = Instant::now();
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let took = started.elapsed();
        shortest = Some(shortest.map_or(took, |known: Duration| known.min(took)));
        last = Some(output);
    }
    (shortest.unwrap(), last.unwrap())
}

#[ignore = "measures for minutes: cargo test --release -p swansong --test e2e-api -- --ignored --nocapture doctor::figures"]
#[tokio::test(flavor = "multi_thread")]
async fn large_cluster() {
    const JOBS: usize = 200;
    const PODS_OF_A_JOB: usize = 5;
    const PODS_OF_THE_LARGE_JOB: usize = 64;
    let world = World::start().await;
    let count = JOBS * PODS_OF_A_JOB;
    let names = (0..count).map(|n| format!("npu-{n:04}"));
    let mut nodes: Vec<(String, Agent)> =
        stream::iter(names).map(|name| add_node(&world, name)).buffer_unordered(CONCURRENT).collect().await;
    nodes.sort_by(|(a, _), (b, _)| a.cmp(b));
    let all = NODES.len() + count;
    let ready = json!({"status": {"desiredNumberScheduled": all, "numberReady": all, "currentNumberScheduled": all, "numberMisscheduled": 0}});
    world.merge_status("DaemonSet", AGENTS, "swansong-agent", &ready).await;

    add_job(&world, "large", &nodes[..PODS_OF_THE_LARGE_JOB]).await;
    let (took, output) = shortest(&world, &["doctor", "large", "-n", NAMESPACE, "-o", "json"]).await;
    assert_healthy(&output);
    println!(
        "doctor of a healthy job of {PODS_OF_THE_LARGE_JOB} Pods: {took:.2?}, {} checks",
        checks(&output).len()
    );
    let (_, output) = shortest(&world, &["doctor", "large", "-n", NAMESPACE]).await;
    println!("its output has {} lines", String::from_utf8_lossy(&output.stdout).lines().count());
    world.delete("AscendJob", NAMESPACE, "large").await;
    for pod in 0..PODS_OF_THE_LARGE_JOB {
        let name = if pod == 0 { "large-master-0".to_owned() } else { format!("large-worker-{}", pod - 1) };
        world.delete("Pod", NAMESPACE, &name).await;
    }

    // The first job is there, with its own two nodes.
    let jobs = nodes.chunks(PODS_OF_A_JOB).enumerate();
    let created = stream::iter(jobs).map(|(n, nodes)| {
        let world = &world;
        async move { add_job(world, &format!("job-{n}"), nodes).await }
    });
    created.buffer_unordered(CONCURRENT).collect::<()>().await;
    let (took, output) = shortest(&world, &["doctor", "--all", "-o", "json"]).await;
    assert_healthy(&output);
    println!(
        "doctor --all of {all} nodes and {} jobs: {took:.2?}, {} checks",
        JOBS + 1,
        checks(&output).len()
    );
    let (_, output) = shortest(&world, &["doctor", "--all"]).await;
    println!("its output has {} lines", String::from_utf8_lossy(&output.stdout).lines().count());
    let (took, output) = shortest(&world, &["status", "-o", "json"]).await;
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = |table: &Value, key: &str| {
        table[key].as_array().unwrap().iter().filter(|row| row["ready"] == "yes").count()
    };
    assert_eq!((rows(&table, "jobs"), rows(&table, "nodes")), (JOBS + 1, all));
    println!("status of the same: {took:.2?}");
    let bundle = world.files.path().join("bundle.tar.gz");
    let mut command = swansong(["doctor", "--bundle"]);
    command.arg(&bundle).env("KUBECONFIG", world.cluster.kubeconfig());
    let started = Instant::now();
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    println!(
        "a bundle of the same: {:.2?}, {} KiB",
        started.elapsed(),
        bundle.metadata().unwrap().len() / 1024
    );
}
