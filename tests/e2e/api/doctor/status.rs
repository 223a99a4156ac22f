//! `swansong status`, and its rows as the cluster changes.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use swansong_testcluster::{Cluster, Tier};

use super::objects::{self, NAMESPACE, NODES, PODS};
use super::world::World;
use crate::support::swansong;

/// No change takes longer to be shown.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `swansong status -w -o json`, and what it has printed.
struct Watching {
    process: Child,
    lines: Receiver<Value>,
}

impl Watching {
    fn start(world: &World) -> Self {
        let mut command = swansong(["status", "--watch", "-o", "json"]);
        command.env("KUBECONFIG", world.cluster.kubeconfig()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { process, lines }
    }

    /// Waits for tables of which `is_expected` is true.
    fn until(&self, what: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        while let Ok(table) = self.lines.recv_timeout(TIMEOUT) {
            if is_expected(&table) {
                return table;
            }
            last = table;
        }
        panic!("{what}: {last:#}");
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_it_as_a_plugin() {
    let cluster = Cluster::start(Tier::Api).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_swansong"), folder.path().join("kubectl-swansong")).unwrap();
    let mut kubectl = Command::new(&cluster.info().kubectl);
    kubectl.args(["swansong", "doctor", "-o", "json"]).env("PATH", folder.path());
    kubectl.env("KUBECONFIG", cluster.kubeconfig());
    let output = tokio::task::spawn_blocking(move || kubectl.output().unwrap()).await.unwrap();
    // Nothing is installed there.
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["checks"][0]["check"], "webhook-configuration");
}

fn event(uid: &Value, reason: &str) -> Value {
    objects::fault_event("AscendJob", "bert", uid, reason, "a text", 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn table_follows_jobs_faults_and_nodes() {
    let world = World::start().await;
    let watching = Watching::start(&world);
    let job = |table: &Value| table["jobs"][0].clone();
    let first = watching.until("a healthy job", |table| job(table)["ready"] == "yes");
    assert_eq!((&job(&first)["name"], &job(&first)["runningPods"]), (&json!("bert"), &json!(2)));
    assert_eq!(first["problems"], json!([]));
    let nodes: Vec<&Value> = first["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(nodes, NODES);

    world.merge_status("Pod", NAMESPACE, PODS[1], &json!({"status": {"phase": "Pending"}})).await;
    let pending = watching.until("a Pod that waits", |table| job(table)["ready"] == "no");
    assert_eq!(job(&pending)["why"][0]["check"], "pods-running");
    world.merge_status("Pod", NAMESPACE, PODS[1], &json!({"status": {"phase": "Running"}})).await;
    watching.until("both Pods run", |table| job(table)["ready"] == "yes");

    let conditions = json!([objects::condition("DumpReady", "False", "DevicesMissing")]);
    world.merge_status("Node", "", NODES[0], &json!({"status": {"conditions": conditions}})).await;
    let unready = watching.until("a node that isn't ready", |table| table["nodes"][0]["ready"] == "no");
    assert_eq!(job(&unready)["why"][0]["check"], "dump-ready");
    world.merge_status("Node", "", NODES[0], &json!({"status": {"conditions": objects::conditions()}})).await;
    watching.until("the node is ready", |table| job(table)["ready"] == "yes");

    let uid = world.get("AscendJob", NAMESPACE, "bert").await["metadata"]["uid"].clone();
    world.create(event(&uid, "FaultRelayed")).await;
    let hit = watching.until("a fault", |table| !job(table)["lastFault"].is_null());
    assert_eq!(
        (&job(&hit)["lastFault"]["reason"], &job(&hit)["outcome"]),
        (&json!("FaultRelayed"), &Value::Null)
    );
    world.create(event(&uid, "DumpSucceeded")).await;
    watching.until("its outcome", |table| job(table)["outcome"]["reason"] == "DumpSucceeded");

    world.delete("AscendJob", NAMESPACE, "bert").await;
    watching.until("the job is deleted", |table| table["jobs"] == json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn role_suffices_and_what_may_not_be_read_is_said() {
    let world = World::start().await;
    let status = async |groups: &[&str], arguments: &[&str]| {
        let mut command = swansong(["status"]);
        command.args(arguments).env("KUBECONFIG", world.kubeconfig_of(groups));
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = status(&["swansong:doctor"], &[]).await;
    assert!(text.contains("ml/bert  2/2   yes") && text.contains("npu-a  1     yes    AllRelayed"), "{text}");
    let table: Value =
        serde_json::from_str(&status(&["swansong:doctor"], &["-n", NAMESPACE, "-o", "json"]).await).unwrap();
    assert_eq!((&table["jobs"][0]["ready"], &table["problems"]), (&json!("yes"), &json!([])));
    let table: Value =
        serde_json::from_str(&status(&["swansong:doctor"], &["-n", "mindx-dl", "-o", "json"]).await).unwrap();
    assert_eq!(table["jobs"], json!([]));

    let table: Value = serde_json::from_str(&status(&[], &["-o", "json"]).await).unwrap();
    assert_eq!((&table["jobs"], &table["nodes"]), (&json!([]), &json!([])));
    let problems = table["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 6, "{problems:#?}");
    assert!(
        problems.iter().all(|problem| problem.as_str().unwrap().contains("may not be read")),
        "{problems:#?}"
    );
}
