//! The dump of a job after a fault: the rank on a lost device is ended, and the outcome is found out by what the
//! agents of the job's nodes see. The processes of the Pod are a procfs tree below the agent's host root.

use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use swansong_fixtures::mindcluster::{config_map, pod_metadata};
use swansong_testcluster::eventually;

use crate::faults::{CRITICAL, HBM, OCCUR, RECOVER, Scene, TEST_TIMEOUT};
use crate::support::create;

/// MindCluster's code of a device that has dropped.
const DROPPED: u32 = 0x40F8_4E00;
const CONTAINER: &str = "5a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef";
const LAUNCHER: u32 = 4_000_000;
const TABLE: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
/// An established connection to port 8000.
const CONNECTION: &str =
    "   0: 0100007F:9C40 0200007F:1F40 01 00000000:00000000 00:00000000 00000000  0 0 7 1 0 20 4 30 10 -1\n";

/// The processes of the job's Pod on this node.
struct Processes<'a> {
    scene: &'a Scene,
    uid: String,
    rank: Child,
}

impl<'a> Processes<'a> {
    /// A launcher and a rank on device 3, which is a real process.
    async fn start(scene: &'a Scene) -> Self {
        let pods: Api<Pod> = Api::namespaced(scene.site.client.clone(), &scene.namespace());
        let status = json!({"name": "ascend", "containerID": format!("containerd://{CONTAINER}"), "image": "x",
            "imageID": "x", "ready": true, "restartCount": 0, "state": {}});
        let status = Patch::Merge(json!({"status": {"containerStatuses": [status]}}));
        let pod = pods.patch_status("bert-master-0", &PatchParams::default(), &status).await.unwrap();
        let rank = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap();
        let processes = Self { scene, uid: pod.metadata.uid.unwrap(), rank };
        let host = &scene.site.host;
        host.link("/proc/1/ns/net", "net:[1]");
        host.link("/proc/1/ns/pid", std::fs::read_link("/proc/self/ns/pid").unwrap().to_str().unwrap());
        processes.add(LAUNCHER, 1, &["/usr/lib/python3/dist-packages/swansong_launcher_hook.py"]);
        processes.add(processes.rank.id(), LAUNCHER, &["/dev/davinci3"]);
        processes.connections("");
        processes
    }

    fn add(&self, pid: u32, parent: u32, files: &[&str]) {
        let (host, uid) = (&self.scene.site.host, &self.uid);
        host.file(&format!("/proc/{pid}/stat"), format!("{pid} (python) S {parent} 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 0 20 0 1 0 77 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"));
        host.file(&format!("/proc/{pid}/cgroup"), format!("0::/kubepods/burstable/pod{uid}/{CONTAINER}\n"));
        host.file(&format!("/proc/{pid}/environ"), "RANK=0\0LOCAL_RANK=0\0ASCEND_VISIBLE_DEVICES=3\0");
        host.folder(&format!("/proc/{pid}/fd"));
        host.link(&format!("/proc/{pid}/ns/net"), "net:[2]");
        for (number, file) in files.iter().enumerate() {
            host.link(&format!("/proc/{pid}/fd/{number}"), file);
        }
    }

    /// Shows `lines` as the connections in the Pod's network namespace.
    fn connections(&self, lines: &str) {
        for pid in [LAUNCHER, self.rank.id()] {
            self.scene.site.host.file(&format!("/proc/{pid}/net/tcp"), format!("{TABLE}{lines}"));
        }
    }

    async fn annotate(&self, annotations: Value) {
        let pods: Api<Pod> = Api::namespaced(self.scene.site.client.clone(), &self.scene.namespace());
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        pods.patch("bert-master-0", &PatchParams::default(), &patch).await.unwrap();
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.rank.kill();
        let _ = self.rank.wait();
    }
}

#[tokio::test]
async fn rank_on_a_lost_device_is_ended_where_the_launcher_hook_protects_the_others() {
    let scene = Scene::new("dump-fast").await;
    let namespace = scene.namespace();
    scene.reset_config().await;
    let mut processes = Processes::start(&scene).await;
    processes.annotate(json!({"swansong.dev/fast-dump": "true"})).await;
    let agent = scene.site.start();

    // A device that may live: its rank is left to ClusterD.
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    scene.has_accepted(&agent, &["occur"]).await;
    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    scene.has_accepted(&agent, &["occur", "recover"]).await;

    // Without a hook nothing protects the other ranks.
    scene.script.event(3, DROPPED, CRITICAL, OCCUR, "lost");
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["RankNotEnded"]).await;
    scene.expect_events(&namespace, "AscendJob", "bert", &["FaultRelayed", "RankNotEnded"]).await;
    assert!(processes.rank.try_wait().unwrap().is_none());
    scene.script.event(3, DROPPED, CRITICAL, RECOVER, "back");
    scene.has_accepted(&agent, &["occur", "recover", "occur", "recover"]).await;

    processes.annotate(json!({"swansong.dev/launcher-hook.py": "…"})).await;
    scene.script.event(3, DROPPED, CRITICAL, OCCUR, "lost");
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["RankEnded"]).await;
    assert!(!processes.rank.wait().unwrap().success());
    let metrics = agent.get("/metrics").1;
    for result in ["ok", "no_hook"] {
        let line = format!("swansong_agent_fault_ranks_ended_total{{result=\"{result}\"}} 1");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

/// The operator deletes the PodGroup while ranks on another node still save: the fault isn't withdrawn before the agent
/// there has seen the end of the dump.
#[tokio::test]
async fn outcome_comes_from_the_agents_of_the_other_nodes_when_the_pod_group_is_gone() {
    let address = scene_clusterd().await;
    let scene = Scene::with("dump-peers", &address, "default").await;
    let (namespace, client) = (scene.namespace(), &scene.site.client);
    scene.reset_config().await;
    let processes = Processes::start(&scene).await;
    processes.connections(CONNECTION);
    let mut worker = pod_metadata("job-1");
    worker["name"] = json!("bert-worker-0");
    worker["annotations"]["hccl/rankIndex"] = json!("1");
    let worker = json!({"apiVersion": "v1", "kind": "Pod", "metadata": worker,
        "spec": {"nodeName": "dump-peers-other", "containers": [{"name": "ascend", "image": "x"}]}});
    create(client, &namespace, worker).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
    let worker = pods.patch_status("bert-worker-0", &PatchParams::default(), &running).await.unwrap();
    let (uid, name) = (worker.metadata.uid.unwrap(), "swansong-dumps.dump-peers-other");
    let seen = |text: Value| json!({"pods.json": json!({&uid: text}).to_string()});
    create(client, "default", config_map(name, &seen(json!({"connections": {"connectedAt": 1}}))))
        .await
        .unwrap();

    let agent = scene.site.start();
    // This node's agent shares what it sees too.
    let own = format!("swansong-dumps.{}", scene.site.node);
    let shared = eventually("the agent shares the connection", TEST_TIMEOUT, || async {
        let text = scene.site.cluster.kubectl(&["get", "configmap", &own, "-o", "json"]).await;
        text.map_err(|error| error.to_string())
    });
    assert!(shared.await.unwrap().contains("connectedAt"));
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    scene.has_accepted(&agent, &["occur"]).await;
    scene.site.cluster.kubectl(&["--namespace", &namespace, "delete", "podgroup", "bert-1"]).await.unwrap();
    // The container on the faulty node ends, the ranks of the other one are connected.
    processes.connections("");
    eventually("the end of the local connections is shared", TEST_TIMEOUT, || async {
        let text = scene.site.cluster.kubectl(&["get", "configmap", &own, "-o", "json"]).await;
        let text = text.map_err(|error| error.to_string())?;
        if text.contains("disconnectedAt\\\":null") { Err(text) } else { Ok(()) }
    })
    .await
    .unwrap();
    assert_eq!(scene.accepted().len(), 1, "not withdrawn");

    // The ranks have reconnected to another controller. The dump is ordered some seconds after the fault at the earliest.
    let later = swansong_faults::unix_millis();
    let saved = seen(json!({
        "connections": {"connectedAt": later + 20_000, "disconnectedAt": later},
        "renamed": {"folder": "/save/iter_0000007", "at": later + 10_000},
    }));
    let patch = json!({"data": saved}).to_string();
    let patch = ["patch", "configmap", name, "--type=merge", "--patch", &patch];
    scene.site.cluster.kubectl(&patch).await.unwrap();
    scene.expect_events(&namespace, "AscendJob", "bert", &["DumpSucceeded"]).await;
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["DevicesKeptAfterDump"]).await;
    scene.has_accepted(&agent, &["occur", "recover"]).await;
    assert!(agent.get("/metrics").1.contains("fault_outcomes_total{outcome=\"renamed\"} 1"));
}

async fn scene_clusterd() -> String {
    format!("clusterd: {{dial: false, address: \"{}\"}}", crate::faults::clusterd().await.address())
}
