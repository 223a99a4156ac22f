//! Device faults from the driver's library to ClusterD, with a real agent, a real API server, a fake libdcmi.so and a fake
//! ClusterD.

mod rehearsal;
mod state;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use swansong_fake_clusterd::{Effect, FakeClusterd, Settings};
use swansong_fake_dcmi::{Script, build};
use swansong_testcluster::eventually;

use crate::agent::{Agent, Site};
use crate::support::{create, rig};
use swansong_fixtures::host::DRIVER;
use swansong_fixtures::mindcluster::{
    config_map, device_info, job_summary, pod_group, pod_group_definition, pod_metadata,
};
use swansong_testcluster::expect_events;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// MindCluster's code of an HBM fault of several bits, which ends ranks.
pub(crate) const HBM: u32 = 0x80E0_1801;
pub(crate) const CRITICAL: u8 = 3;
pub(crate) const RECOVER: u8 = 0;
pub(crate) const OCCUR: u8 = 1;

/// A node with a job on device 3, the files of its agent, and the shared ClusterD.
pub(crate) struct Scene {
    pub(crate) site: Site,
    pub(crate) script: Script,
    clusterd: &'static FakeClusterd,
}

impl Scene {
    pub(crate) async fn new(name: &str) -> Self {
        let address = clusterd().await.address();
        Self::with(name, &format!("clusterd: {{dial: false, address: \"{address}\"}}"), "").await
    }

    /// With a `clusterd` section and the namespace of the ConfigMap that ClusterD reads.
    pub(crate) async fn with(name: &str, clusterd_section: &str, namespace: &str) -> Self {
        definitions().await;
        let clusterd = clusterd().await;
        let config = format!(
            "npus: 8\ndriver: {{trust: anyone}}\nports: []\n{clusterd_section}\n\
             faults: {{enabled: true, stateFolder: /state, settle: 1s, configMapNamespace: \"{namespace}\"}}\n",
        );
        let site = Site::new(name, &config).await;
        // The agent is a process of this machine, so its state folder has the path of this machine.
        let config = config.replace("/state", site.host.path("/state").to_str().unwrap());
        site.host.file("/agent.yaml", &config);
        let libraries = site.host.path(&format!("{DRIVER}/lib64/driver"));
        std::fs::remove_file(libraries.join("libdcmi.so")).unwrap();
        let script = Script::beside(&build(&libraries));
        let scene = Self { site, script, clusterd };
        create(&scene.site.client, "kube-system", device_info(&scene.site.node)).await.unwrap();
        scene.job().await;
        scene
    }

    pub(crate) fn namespace(&self) -> String {
        format!("jobs-{}", self.site.node)
    }

    /// Creates a job of one Pod on device 3, with everything that its dump needs except the reset ConfigMap.
    async fn job(&self) {
        let (client, namespace) = (&self.site.client, self.namespace());
        let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        create(client, "", own).await.unwrap();
        for object in [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}),
            pod_group(),
            job_summary(),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata("job-1"),
            "spec": {
                "nodeName": self.site.node, "containers": [{"name": "ascend", "image": "x"}],
                "volumes": [{"name": "swansong-launcher-hook", "emptyDir": {}}],
            }}),
        ] {
            create(client, &namespace, object).await.unwrap();
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
        pods.patch_status("bert-master-0", &PatchParams::default(), &running).await.unwrap();
    }

    pub(crate) async fn reset_config(&self) {
        let data = json!({"reset.json": "{\"status\":\"initializing\"}", "checkCode": ""});
        create(&self.site.client, &self.namespace(), config_map("reset-config-bert", &data)).await.unwrap();
    }

    /// The faults of this node that ClusterD accepted, as `assertion id`, without the node's name in the id.
    pub(crate) fn accepted(&self) -> Vec<String> {
        let prefix = format!("{}.", self.site.node);
        self.clusterd.with(|core, _| {
            let accepted = core.ledger().accepted.iter().filter(|accepted| accepted.node == self.site.node);
            accepted
                .map(|accepted| format!("{} {}", accepted.assertion, accepted.fault_id.replace(&prefix, "")))
                .collect()
        })
    }

    pub(crate) async fn has_accepted(&self, agent: &Agent, assertions: &[&str]) -> Vec<String> {
        let what = format!("ClusterD has accepted {assertions:?}");
        let accepted = eventually(&what, TEST_TIMEOUT, || async {
            let accepted = self.accepted();
            let now: Vec<&str> = accepted.iter().filter_map(|text| text.split(' ').next()).collect();
            if now == assertions { Ok(accepted) } else { Err(format!("{accepted:?}")) }
        });
        match accepted.await {
            Ok(accepted) => accepted,
            Err(error) => panic!("{error}\n{}", agent.get("/status").1),
        }
    }

    pub(crate) async fn expect_events(&self, namespace: &str, kind: &str, name: &str, reasons: &[&str]) {
        expect_events(&self.site.client, namespace, kind, name, reasons).await.unwrap();
    }

    async fn relayed(&self, status: &str, reason: &str) {
        eventually(&format!("FaultsRelayed is {status} ({reason})"), TEST_TIMEOUT, || async {
            let nodes: Api<Node> = Api::all(self.site.client.clone());
            let node = nodes.get(&self.site.node).await.map_err(|error| error.to_string())?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let condition = conditions.into_iter().find(|condition| condition.type_ == "FaultsRelayed");
            match condition {
                Some(found) if found.status == status && found.reason.as_deref() == Some(reason) => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// Waits until no fault is open, and checks that ClusterD has none of this node.
    async fn all_faults_ended(&self, agent: &Agent) {
        eventually("no fault is open", TEST_TIMEOUT, || async {
            let status: Value =
                serde_json::from_str(&agent.get("/status").1).map_err(|error| error.to_string())?;
            let faults = &status["faults"]["faults"];
            if faults.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(faults.to_string()) }
        })
        .await
        .unwrap();
        let shown = self.clusterd.with(|core, _| core.statistic());
        assert!(!shown.values().any(|faults| faults.contains(&self.site.node)), "{shown:?}");
    }
}

/// The ClusterD of all tests, since a cluster has one, which writes one ConfigMap. It runs on a separate thread, because the
/// runtime of a test ends with the test.
pub(crate) async fn clusterd() -> &'static FakeClusterd {
    static CLUSTERD: tokio::sync::OnceCell<&FakeClusterd> = tokio::sync::OnceCell::const_new();
    CLUSTERD
        .get_or_init(|| async {
            let cluster = rig().await.cluster;
            let (sender, started) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let clusterd = Arc::new(FakeClusterd::start(Settings::default()).await.unwrap());
                    let kept: &'static FakeClusterd = Box::leak(Box::new(Arc::clone(&clusterd)));
                    let _ = sender.send(kept);
                    let client = cluster.client().await.unwrap();
                    swansong_fake_clusterd::cluster::run(client, clusterd).await;
                });
            });
            started.await.unwrap()
        })
        .await
}

/// Applies the definitions and the namespace that Volcano and ClusterD install.
async fn definitions() {
    static READY: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    READY
        .get_or_init(|| async {
            let group = pod_group_definition();
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cluster-system"}});
            let cluster = rig().await.cluster;
            cluster.apply(&format!("{group}\n---\n{namespace}")).await.unwrap();
            cluster
                .kubectl(&[
                    "wait",
                    "--for=condition=Established",
                    "crd/podgroups.scheduling.volcano.sh",
                    "--timeout=60s",
                ])
                .await
                .unwrap();
        })
        .await;
}

#[tokio::test]
async fn fault_is_sent_when_its_job_can_dump_and_withdrawn_after_the_dump() {
    let scene = Scene::new("fault-story").await;
    let (node, namespace) = (scene.site.node.clone(), scene.namespace());
    let agent = scene.site.start();
    scene.relayed("True", "AllRelayed").await;

    // No checkpoint would be saved, since the reset ConfigMap is missing.
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["DeviceFault", "FaultBlocked"]).await;
    scene.expect_events(&namespace, "AscendJob", "bert", &["FaultBlocked"]).await;
    scene.expect_events("default", "Node", &node, &["DeviceFault", "FaultBlocked"]).await;
    scene.relayed("False", "FaultBlocked").await;
    assert_eq!(scene.accepted(), [""; 0]);

    scene.reset_config().await;
    let accepted = scene.has_accepted(&agent, &["occur"]).await;
    assert!(accepted[0].starts_with("occur npu3.80E01801."), "{accepted:?}");
    scene.clusterd.with(|core, _| {
        let ledger = core.ledger();
        let kills = ledger.kills.iter().filter(|kill| kill.node == node).count();
        assert_eq!((kills, ledger.misdirected.len(), ledger.dropped.len()), (1, 0, 0));
        let accepted = ledger.accepted.iter().find(|accepted| accepted.node == node).unwrap();
        assert_eq!((accepted.devices.as_slice(), accepted.code.as_str()), (&[3][..], "020011001"));
    });
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["FaultRelayed"]).await;
    scene.expect_events(&namespace, "AscendJob", "bert", &["FaultRelayed"]).await;
    scene.relayed("True", "AllRelayed").await;

    // The fault is withdrawn after the dump, although it is still active.
    let saved = json!({"metadata": {"annotations": {"ProcessRecoverStatus": "dump-success"}}});
    let group = ["--namespace", &namespace, "patch", "podgroup", "bert-1", "--type=merge", "--patch"];
    scene.site.cluster.kubectl(&[&group[..], &[saved.to_string().as_str()]].concat()).await.unwrap();
    scene.expect_events(&namespace, "AscendJob", "bert", &["DumpSucceeded"]).await;
    let accepted = scene.has_accepted(&agent, &["occur", "recover"]).await;
    assert_eq!(accepted[0].split(' ').next_back(), accepted[1].split(' ').next_back());

    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    scene.all_faults_ended(&agent).await;
    scene
        .expect_events(
            "default",
            "Node",
            &node,
            &["FaultRelayed", "FaultWithdrawn", "DumpSucceeded", "DeviceFaultEnded"],
        )
        .await;
}

#[tokio::test]
async fn end_of_a_fault_is_sent_after_a_restart_of_the_agent() {
    let scene = Scene::new("fault-restart").await;
    scene.reset_config().await;
    let agent = scene.site.start();
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    let before = scene.has_accepted(&agent, &["occur"]).await;
    agent.kill();
    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    let agent = scene.site.start();
    let after = scene.has_accepted(&agent, &["occur", "recover"]).await;
    assert_eq!(after[1], before[0].replace("occur", "recover"));
    scene.all_faults_ended(&agent).await;
    let effects = scene.clusterd.with(|core, _| {
        let accepted = core.ledger().accepted.iter().filter(|accepted| accepted.node == scene.site.node);
        accepted.map(|accepted| accepted.effect).collect::<Vec<_>>()
    });
    assert!(!effects.contains(&Effect::Unknown), "{effects:?}");
}

#[tokio::test]
async fn unreachable_clusterd_gets_faults_by_config_map() {
    // A port without a listener.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let section = format!("clusterd: {{dial: false, address: \"{closed}\", timeout: 1s}}");
    let scene = Scene::with("fault-map", &section, "default").await;
    scene.reset_config().await;
    let agent = scene.site.start();
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    scene.has_accepted(&agent, &["occur"]).await;
    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    scene.has_accepted(&agent, &["occur", "recover"]).await;
    scene.all_faults_ended(&agent).await;
    assert!(agent.get("/metrics").1.contains("route=\"config_map\",result=\"ok\"} 2"));
}

#[tokio::test]
async fn changed_classification_withdraws_and_sends_the_fault() {
    let scene = Scene::new("fault-classified").await;
    scene.reset_config().await;
    let file = scene.site.host.path("/classes.json");
    let classify = |text: &str| {
        // Atomically, like an update of a mounted ConfigMap.
        let new = file.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &file).unwrap();
    };
    classify(r#"{"SeparateNPUCodes": ["8000AAAA"]}"#);
    let config = std::fs::read_to_string(scene.site.host.path("/agent.yaml")).unwrap();
    let config =
        config.replace("faults: {", &format!("faults: {{classification: {{file: \"{}\"}}, ", file.display()));
    scene.site.host.file("/agent.yaml", &config);
    let agent = scene.site.start();
    // Device 5 has no pod.
    scene.script.event(5, 0x8000_AAAA, CRITICAL, OCCUR, "made up");
    let before = scene.has_accepted(&agent, &["occur"]).await;
    classify(r#"{"NotHandleFaultCodes": ["8000AAAA"]}"#);
    let after = scene.has_accepted(&agent, &["occur", "recover"]).await;
    assert_eq!(
        after[1],
        before[0].replace("occur", "recover"),
        "withdrawn, since ClusterD doesn't handle it any more"
    );
    classify(r#"{"SeparateNPUCodes": ["8000AAAA"]}"#);
    let again = scene.has_accepted(&agent, &["occur", "recover", "occur"]).await;
    assert_ne!(again[2], before[0]);
    scene.script.event(5, 0x8000_AAAA, CRITICAL, RECOVER, "made up");
    scene.all_faults_ended(&agent).await;
}

/// The number of kills: `SWANSONG_KILLS`, which `make soak` sets.
fn kills() -> u32 {
    std::env::var("SWANSONG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8)
}

/// Faults begin and end while the agent is killed and restarted. At the end ClusterD has exactly the active faults; no ended
/// fault was sent again, and no fault changed its id.
#[tokio::test]
async fn agent_killed_again_and_again_loses_no_fault() {
    let scene = Scene::new("fault-kills").await;
    scene.reset_config().await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut truth = std::collections::BTreeSet::new();
    let mut agent = scene.site.start();
    for _ in 0..kills() {
        for _ in 0..random.u8(1..5) {
            // On devices without a Pod, so that no preflight delays the faults.
            let fault = (random.u32(4..8), 0x8000_0000 + random.u32(0..3));
            let assertion = if truth.remove(&fault) { RECOVER } else { OCCUR };
            if assertion == OCCUR {
                truth.insert(fault);
            }
            scene.script.event(fault.0, fault.1, CRITICAL, assertion, "made up");
            tokio::time::sleep(Duration::from_millis(random.u64(0..100))).await;
        }
        // The agent is killed at a random time.
        tokio::time::sleep(Duration::from_millis(random.u64(0..2500))).await;
        agent.kill();
        agent = scene.site.start();
    }
    let expected: Vec<String> = truth.iter().map(|(npu, code)| format!("npu{npu}.{code:X}")).collect();
    eventually("ClusterD has exactly the active faults", Duration::from_mins(3), || async {
        let data = scene.clusterd.with(|core, _| core.statistic());
        let faults = data.get("PublicFaults").cloned().unwrap_or_default();
        let shown = swansong_clusterd::statistic::node_faults(Some(&faults), None, &scene.site.node);
        let ids = shown.map_err(|error| error.to_string())?.faults;
        let prefix = format!("{}.", scene.site.node);
        let mut there: Vec<String> = ids
            .iter()
            .filter_map(|fault| Some(fault.id.strip_prefix(&prefix)?.rsplit_once('.')?.0.to_owned()))
            .collect();
        there.sort();
        let status: Value = serde_json::from_str(&agent.get("/status").1).unwrap_or_default();
        let faults = status["faults"]["faults"].as_array().cloned().unwrap_or_default();
        let open = faults.iter().filter(|fault| fault["phase"] != "confirmed").count();
        if there == expected && faults.len() == expected.len() && open == 0 {
            Ok(())
        } else {
            Err(format!("{there:?}, not {expected:?}; open: {faults:?}"))
        }
    })
    .await
    .unwrap();
    let mut ended = std::collections::BTreeSet::new();
    scene.clusterd.with(|core, _| {
        for accepted in core.ledger().accepted.iter().filter(|accepted| accepted.node == scene.site.node) {
            if accepted.assertion == "recover" {
                ended.insert(accepted.fault_id.clone());
            } else {
                assert!(!ended.contains(&accepted.fault_id), "{} was sent after its end", accepted.fault_id);
            }
        }
    });
}
