//! Device faults, from the driver's library to ClusterD: a real agent, a real API server, a libdcmi.so and a ClusterD
//! without NPUs. What a fault's way looks like when all holds, when nothing would be saved, and when the agent dies.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use swansong_fake_clusterd::{Effect, Settings, StandIn};
use swansong_fake_dcmi::{Script, build};
use swansong_testcluster::eventually;

use crate::agent::{Agent, Site};
use crate::support::{create, rig};
use swansong_fixtures::host::DRIVER;
use swansong_fixtures::mindcluster::{
    config_map, device_info, job_summary, pod_group, pod_group_definition, pod_metadata,
};
use swansong_testcluster::expect_events;

const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// MindCluster's code of an HBM fault of several bits, which ends ranks.
const HBM: u32 = 0x80E0_1801;
const CRITICAL: u8 = 3;
const RECOVER: u8 = 0;
const OCCUR: u8 = 1;

/// A node with a job on device 3, its agent's files, and a ClusterD that keeps a ledger.
struct Scene {
    site: Site,
    script: Script,
    clusterd: &'static StandIn,
}

impl Scene {
    async fn new(name: &str) -> Self {
        let address = clusterd().await.address();
        Self::with(name, &format!("clusterd: {{dial: false, address: \"{address}\"}}"), "").await
    }

    /// With ClusterD's address as configured, and a namespace for the ConfigMap that it reads.
    async fn with(name: &str, clusterd_section: &str, namespace: &str) -> Self {
        definitions().await;
        let clusterd = clusterd().await;
        let config = format!(
            "npus: 8\ndriver: {{trust: anyone}}\nports: []\n{clusterd_section}\n\
             faults: {{enabled: true, stateFolder: /state, settle: 1s, configMapNamespace: \"{namespace}\"}}\n",
        );
        let site = Site::new(name, &config).await;
        // Folders of this process are as the process sees them.
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

    fn namespace(&self) -> String {
        format!("jobs-{}", self.site.node)
    }

    /// A job of one pod that holds device 3 of this node, and all that its dump needs but the reset ConfigMap.
    async fn job(&self) {
        let (client, namespace) = (&self.site.client, self.namespace());
        let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        create(client, "", own).await.unwrap();
        for object in [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}),
            pod_group(),
            job_summary(),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata("job-1"),
                "spec": {"nodeName": self.site.node, "containers": [{"name": "ascend", "image": "x"}]}}),
        ] {
            create(client, &namespace, object).await.unwrap();
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
        pods.patch_status("bert-master-0", &PatchParams::default(), &running).await.unwrap();
    }

    async fn reset_config(&self) {
        let data = json!({"reset.json": "{\"status\":\"initializing\"}", "checkCode": ""});
        create(&self.site.client, &self.namespace(), config_map("reset-config-bert", &data)).await.unwrap();
    }

    /// What ClusterD took, as `assertion id`, the id without its node.
    fn taken(&self) -> Vec<String> {
        let prefix = format!("{}.", self.site.node);
        self.clusterd.with(|core, _| {
            let taken = core.ledger().taken.iter().filter(|taken| taken.node == self.site.node);
            taken
                .map(|taken| format!("{} {}", taken.assertion, taken.fault_id.replace(&prefix, "")))
                .collect()
        })
    }

    async fn has_taken(&self, agent: &Agent, assertions: &[&str]) -> Vec<String> {
        let what = format!("ClusterD has taken {assertions:?}");
        let taken = eventually(&what, TEST_TIMEOUT, || async {
            let taken = self.taken();
            let now: Vec<&str> = taken.iter().filter_map(|text| text.split(' ').next()).collect();
            if now == assertions { Ok(taken) } else { Err(format!("{taken:?}")) }
        });
        match taken.await {
            Ok(taken) => taken,
            Err(error) => panic!("{error}\n{}", agent.get("/status").1),
        }
    }

    async fn expect_events(&self, namespace: &str, kind: &str, name: &str, reasons: &[&str]) {
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

    /// Nothing waits and nothing stands at ClusterD.
    async fn is_over(&self, agent: &Agent) {
        eventually("no fault is open", TEST_TIMEOUT, || async {
            let status: Value =
                serde_json::from_str(&agent.get("/status").1).map_err(|error| error.to_string())?;
            let faults = &status["faults"]["faults"];
            if faults.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(faults.to_string()) }
        })
        .await
        .unwrap();
        let standing = self.clusterd.with(|core, _| core.statistic());
        assert!(!standing.values().any(|faults| faults.contains(&self.site.node)), "{standing:?}");
    }
}

/// One ClusterD for all tests, as a cluster has one: it writes one ConfigMap. On a thread of its own, which outlives the
/// tests.
async fn clusterd() -> &'static StandIn {
    static CLUSTERD: tokio::sync::OnceCell<&StandIn> = tokio::sync::OnceCell::const_new();
    CLUSTERD
        .get_or_init(|| async {
            let cluster = rig().await.cluster;
            let (sender, started) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let stand_in = Arc::new(StandIn::start(Settings::default()).await.unwrap());
                    let kept: &'static StandIn = Box::leak(Box::new(Arc::clone(&stand_in)));
                    let _ = sender.send(kept);
                    let client = cluster.client().await.unwrap();
                    swansong_fake_clusterd::cluster::run(client, stand_in).await;
                });
            });
            started.await.unwrap()
        })
        .await
}

/// What Volcano and ClusterD bring along.
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
async fn a_fault_is_told_when_its_job_can_dump_and_taken_back_when_it_has() {
    let scene = Scene::new("fault-story").await;
    let (node, namespace) = (scene.site.node.clone(), scene.namespace());
    let agent = scene.site.start();
    scene.relayed("True", "AllRelayed").await;

    // Nothing would be saved: the reset ConfigMap is missing.
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["DeviceFault", "FaultHeldBack"]).await;
    scene.expect_events(&namespace, "AscendJob", "bert", &["FaultHeldBack"]).await;
    scene.expect_events("default", "Node", &node, &["DeviceFault", "FaultHeldBack"]).await;
    scene.relayed("False", "FaultHeldBack").await;
    assert_eq!(scene.taken(), [""; 0]);

    scene.reset_config().await;
    let taken = scene.has_taken(&agent, &["occur"]).await;
    assert!(taken[0].starts_with("occur npu3.80E01801."), "{taken:?}");
    scene.clusterd.with(|core, _| {
        let ledger = core.ledger();
        let kills = ledger.kills.iter().filter(|kill| kill.node == node).count();
        assert_eq!((kills, ledger.harm.len(), ledger.dropped.len()), (1, 0, 0));
        let taken = ledger.taken.iter().find(|taken| taken.node == node).unwrap();
        assert_eq!((taken.devices.as_slice(), taken.code.as_str()), (&[3][..], "020011001"));
    });
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["FaultRelayed"]).await;
    scene.expect_events(&namespace, "AscendJob", "bert", &["FaultRelayed"]).await;
    scene.relayed("True", "AllRelayed").await;

    // The job has dumped: the fault has done what it was for, though it stands.
    let saved = json!({"metadata": {"annotations": {"ProcessRecoverStatus": "dump-success"}}});
    let group = ["--namespace", &namespace, "patch", "podgroup", "bert-1", "--type=merge", "--patch"];
    scene.site.cluster.kubectl(&[&group[..], &[saved.to_string().as_str()]].concat()).await.unwrap();
    scene.expect_events(&namespace, "AscendJob", "bert", &["DumpSucceeded"]).await;
    let taken = scene.has_taken(&agent, &["occur", "recover"]).await;
    assert_eq!(taken[0].split(' ').next_back(), taken[1].split(' ').next_back());

    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    scene.is_over(&agent).await;
    scene
        .expect_events(
            "default",
            "Node",
            &node,
            &["FaultRelayed", "FaultWithdrawn", "DumpSucceeded", "DeviceFaultOver"],
        )
        .await;
}

#[tokio::test]
async fn what_ends_while_the_agent_is_dead_is_told_by_the_next_one() {
    let scene = Scene::new("fault-restart").await;
    scene.reset_config().await;
    let agent = scene.site.start();
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    let before = scene.has_taken(&agent, &["occur"]).await;
    agent.kill();
    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    let agent = scene.site.start();
    let after = scene.has_taken(&agent, &["occur", "recover"]).await;
    assert_eq!(after[1], before[0].replace("occur", "recover"));
    scene.is_over(&agent).await;
    let effects = scene.clusterd.with(|core, _| {
        let taken = core.ledger().taken.iter().filter(|taken| taken.node == scene.site.node);
        taken.map(|taken| taken.effect).collect::<Vec<_>>()
    });
    assert!(!effects.contains(&Effect::Unknown), "{effects:?}");
}

#[tokio::test]
async fn where_clusterd_doesnt_answer_it_is_told_by_a_config_map() {
    // A port that nobody listens on.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let section = format!("clusterd: {{dial: false, address: \"{closed}\", timeout: 1s}}");
    let scene = Scene::with("fault-map", &section, "default").await;
    scene.reset_config().await;
    let agent = scene.site.start();
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    scene.has_taken(&agent, &["occur"]).await;
    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    scene.has_taken(&agent, &["occur", "recover"]).await;
    scene.is_over(&agent).await;
    assert!(agent.get("/metrics").1.contains("route=\"config_map\",result=\"ok\"} 2"));
}

/// MindCluster's code of a device that has dropped.
const DROPPED: u32 = 0x40F8_4E00;

/// A job that asks for it and only dumps has its lost ranks told directly, once ClusterD has the fault.
#[tokio::test]
async fn a_job_that_asks_for_a_fast_dump_has_its_ranks_told_directly() {
    let scene = Scene::new("fault-fast").await;
    let namespace = scene.namespace();
    scene.reset_config().await;
    let pods: Api<Pod> = Api::namespaced(scene.site.client.clone(), &namespace);
    let asks = Patch::Merge(json!({"metadata": {"annotations": {"swansong.dev/fast-dump": "true"}}}));
    pods.patch("bert-master-0", &PatchParams::default(), &asks).await.unwrap();
    let agent = scene.site.start();

    // What isn't certainly lost goes the ordinary way.
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM").event(3, HBM, CRITICAL, RECOVER, "HBM");
    scene.script.event(3, HBM, CRITICAL, OCCUR, "HBM");
    scene.has_taken(&agent, &["occur"]).await;
    scene.script.event(3, HBM, CRITICAL, RECOVER, "HBM");
    scene.has_taken(&agent, &["occur", "recover"]).await;
    let reported = |core: &swansong_fake_clusterd::Core| core.ledger().reported.clone();
    assert_eq!(scene.clusterd.with(|core, _| reported(core)), []);

    // ClusterD doesn't know the job.
    scene.script.event(3, DROPPED, CRITICAL, OCCUR, "gone");
    scene.expect_events(&namespace, "AscendJob", "bert", &["FaultRelayed", "RanksNotReported"]).await;
    scene.script.event(3, DROPPED, CRITICAL, RECOVER, "back");
    scene.has_taken(&agent, &["occur", "recover", "occur", "recover"]).await;
    assert_eq!(scene.clusterd.with(|core, _| reported(core)), []);

    scene.clusterd.with(|core, _| core.register("job-1"));
    scene.script.event(3, DROPPED, CRITICAL, OCCUR, "gone");
    scene.expect_events(&namespace, "Pod", "bert-master-0", &["RanksReported"]).await;
    scene.expect_events(&namespace, "AscendJob", "bert", &["RanksReported"]).await;
    let reported = scene.clusterd.with(|core, _| reported(core));
    assert_eq!(reported.len(), 1);
    assert_eq!(
        (reported[0].job.as_str(), &reported[0].ranks[..]),
        ("job-1", &[("0".to_owned(), "1".to_owned())][..])
    );
    let metrics = agent.get("/metrics").1;
    for result in ["ok", "unknown_job"] {
        let line = format!("swansong_agent_fault_rank_reports_total{{result=\"{result}\"}} 1");
        assert!(metrics.contains(&line), "{line}");
    }
}

/// The cluster gets to classify a fault as harmless while it waits: then nothing ends by it.
#[tokio::test]
async fn a_fault_that_is_classified_anew_is_told_as_what_it_is_now() {
    let scene = Scene::new("fault-anew").await;
    scene.reset_config().await;
    let file = scene.site.host.path("/classes.json");
    let classify = |text: &str| {
        // In one step, as a mounted ConfigMap changes.
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
    let before = scene.has_taken(&agent, &["occur"]).await;
    classify(r#"{"NotHandleFaultCodes": ["8000AAAA"]}"#);
    let after = scene.has_taken(&agent, &["occur", "recover"]).await;
    assert_eq!(after[1], before[0].replace("occur", "recover"), "ClusterD need do nothing about it any more");
    classify(r#"{"SeparateNPUCodes": ["8000AAAA"]}"#);
    let again = scene.has_taken(&agent, &["occur", "recover", "occur"]).await;
    assert_ne!(again[2], before[0]);
    scene.script.event(5, 0x8000_AAAA, CRITICAL, RECOVER, "made up");
    scene.is_over(&agent).await;
}

/// As many kills as `SWANSONG_KILLS` says, which `make soak` sets; a few otherwise.
fn kills() -> u32 {
    std::env::var("SWANSONG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8)
}

/// Faults come and go all the while, also when no agent lives. When it is over ClusterD has what stands and nothing else;
/// no fault came back, and none changed its id.
#[tokio::test]
async fn an_agent_that_is_killed_again_and_again_loses_and_swaps_nothing() {
    let scene = Scene::new("fault-kills").await;
    scene.reset_config().await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut truth = std::collections::BTreeSet::new();
    let mut agent = scene.site.start();
    for _ in 0..kills() {
        for _ in 0..random.u8(1..5) {
            // Devices without a pod: what ends a job is the other tests' matter.
            let fault = (random.u32(4..8), 0x8000_0000 + random.u32(0..3));
            let assertion = if truth.remove(&fault) { RECOVER } else { OCCUR };
            if assertion == OCCUR {
                truth.insert(fault);
            }
            scene.script.event(fault.0, fault.1, CRITICAL, assertion, "made up");
            tokio::time::sleep(Duration::from_millis(random.u64(0..400))).await;
        }
        // At whatever moment: that is what is tried.
        tokio::time::sleep(Duration::from_millis(random.u64(0..2500))).await;
        agent.kill();
        agent = scene.site.start();
    }
    let expected: Vec<String> = truth.iter().map(|(npu, code)| format!("npu{npu}.{code:X}")).collect();
    eventually("ClusterD has what stands, and nothing else", Duration::from_mins(3), || async {
        let data = scene.clusterd.with(|core, _| core.statistic());
        let faults = data.get("PublicFaults").cloned().unwrap_or_default();
        let standing = swansong_clusterd::statistic::node_faults(Some(&faults), None, &scene.site.node);
        let ids = standing.map_err(|error| error.to_string())?.faults;
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
    let mut over = std::collections::BTreeSet::new();
    scene.clusterd.with(|core, _| {
        for taken in core.ledger().taken.iter().filter(|taken| taken.node == scene.site.node) {
            if taken.assertion == "recover" {
                over.insert(taken.fault_id.clone());
            } else {
                assert!(!over.contains(&taken.fault_id), "{} came back", taken.fault_id);
            }
        }
    });
}
