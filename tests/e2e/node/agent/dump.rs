//! From a fault of a device to a checkpoint on disk: Swansong by its manifests, training jobs of fakes in Pods.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use swansong_agent::checks::Family;
use swansong_demo::python_image;
use swansong_demo::training::{Job, Leader, Training};
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::{FakeClusterd, Settings};
use swansong_fake_dcmi::{Script, build};
use swansong_fixtures::host::{DRIVER, Host};
use swansong_testcluster::{Cluster, eventually, expect_events};

use super::faults::{HBM, prepare};
use super::rig::{Agents, TIMEOUT, alone};

/// Times of the fakes are this part of those measured on the real programs.
const TIME_FACTOR: f32 = 0.2;

/// Without it, the order to exit isn't delayed.
const UNPROTECTED: (&str, &str) = ("swansong.dev/protect-dump", "false");

/// The agent ends the rank on a device that has dropped.
const FAST: (&str, &str) = ("swansong.dev/fast-dump", "true");
/// A device that has dropped.
const DROPPED: u32 = 0x40F8_4E00;

/// Five that have to save, and one that can't.
const JOBS: [Job; 6] = [
    // The node of rank 0 isn't hit.
    Job { name: "two-pods", first_npu: 0, lost_rank: 1, ..TWO_PODS },
    Job { name: "rank-zero", first_npu: 2, ..TWO_PODS },
    Job { name: "one-pod", pods: 1, npus_per_pod: 2, first_npu: 4, save_seconds: 300, ..TWO_PODS },
    Job { name: "last-rank", pods: 1, npus_per_pod: 2, first_npu: 6, lost_rank: 1, ..TWO_PODS },
    Job { name: "fast", first_npu: 8, annotations: &[FAST], ..TWO_PODS },
    Job { name: "unprotected", first_npu: 10, annotations: &[UNPROTECTED], ..TWO_PODS },
];
/// The lost rank is the first of its group.
pub(super) const TWO_PODS: Job = Job {
    name: "",
    pods: 2,
    npus_per_pod: 1,
    first_npu: 0,
    lost_rank: 0,
    annotations: &[],
    save_seconds: 10,
    is_untouched: false,
    hidden: None,
    by_hand: false,
};

/// Image and start script as they are.
const UNTOUCHED: Job = Job {
    name: "zero-touch",
    is_untouched: true,
    annotations: &[("swansong.dev/reset-config", "configMap")],
    ..TWO_PODS
};

/// The same without a part of zero touch, and the checks of doctor that name it.
const TAKEN_OUT: [(Job, &[&str]); 4] = [
    (taken_out("zero-touch-manager", 2, &[("swansong.dev/manager", "none")]), &["manager-listening"]),
    (
        taken_out("zero-touch-libraries", 3, &[("swansong.dev/libraries", "configured")]),
        &["preload", "launcher-hook-active"],
    ),
    (taken_out("zero-touch-hook", 4, &[UNPROTECTED]), &["launcher-hook"]),
    (Job { hidden: Some(MSPTI_FOLDER), ..taken_out("zero-touch-mspti", 5, &[]) }, &["libraries-found"]),
];

/// Where the image has libmspti.so.
const MSPTI_FOLDER: &str = "/usr/local/Ascend/ascend-toolkit/latest/lib64";

const fn taken_out(
    name: &'static str,
    npu: i32,
    annotations: &'static [(&'static str, &'static str)],
) -> Job {
    Job { name, pods: 1, first_npu: npu, annotations, ..UNTOUCHED }
}

#[tokio::test]
async fn device_faults_of_five_jobs_in_one_second_end_in_checkpoints_and_known_outcomes() {
    let Some((_turn, cluster)) = alone().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::start(cluster, &python_image::build(folder.path()).unwrap()).await;
    // One after another, because the processes of six jobs that start at a time exceed their timeouts on two cores.
    let mut jobs = Vec::new();
    for job in JOBS {
        jobs.push(Training::start(cluster, &stage.leader, folder.path(), job).await.unwrap());
    }

    let first_fault = Instant::now();
    for job in &jobs {
        let code = if job.job.annotations == [FAST] { DROPPED } else { HBM };
        stage.script.event(job.job.lost_npu().try_into().unwrap(), code, 3, 1, "a fault");
    }
    assert!(first_fault.elapsed() < Duration::from_secs(1));
    let saving = jobs.iter().map(|job| fault_to_outcome(cluster, &stage.clusterd, &stage.leader, job));
    futures::future::join_all(saving).await;
    for job in &jobs {
        let (has_file, reasons) = match job.job.annotations {
            [UNPROTECTED] => (false, &["DumpOutcomeUnknown"][..]),
            [FAST] => (true, &["RankEnded", "DumpSucceeded"][..]),
            _ => (true, &["DumpSucceeded"][..]),
        };
        stage.expect(job, has_file, reasons).await;
    }
    stage.stop(&jobs).await;
}

#[tokio::test]
async fn device_fault_of_an_untouched_image_and_start_script_leaves_a_checkpoint() {
    let Some((_turn, cluster)) = alone().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::start(cluster, &python_image::build_unusual(folder.path()).unwrap()).await;
    zero_touch(cluster, "zeroTouchNamespaces: [\"*zero-touch*\"]\n").await;
    let job = Training::start(cluster, &stage.leader, folder.path(), UNTOUCHED).await.unwrap();
    let parts: Vec<&str> = TAKEN_OUT.iter().flat_map(|(_, checks)| *checks).copied().collect();
    eventually("doctor finds nothing wrong with any part", TIMEOUT, || async {
        let named = not_passed(cluster, &job).await?;
        if named.iter().any(|(check, _)| parts.contains(&check.as_str())) {
            Err(format!("{named:?}"))
        } else {
            Ok(())
        }
    })
    .await
    .unwrap();
    eventually("the training container has reset.json", TIMEOUT, || async {
        let read = "while read -r line; do echo \"$line\"; done </user/restore/reset/config/reset.json";
        let pod = ["--namespace", &job.namespace, "exec", "zero-touch-master-0", "--container=ascend", "--"];
        let text = cluster.kubectl(&[&pod[..], &["/bin/sh", "-c", read]].concat()).await;
        let text = text.map_err(|error| error.to_string())?;
        if text.contains("initializing") { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    let mut others = Vec::new();
    for (other, checks) in TAKEN_OUT {
        others.push(Training::create(cluster, &stage.leader, folder.path(), other).await.unwrap());
        eventually(&format!("doctor names what {} lacks", other.name), TIMEOUT, || async {
            let named = not_passed(cluster, others.last().unwrap()).await?;
            let is_named = |check: &&str| named.iter().any(|(name, _)| name == check);
            if checks.iter().all(is_named) { Ok(()) } else { Err(format!("{named:?}")) }
        })
        .await
        .unwrap();
    }
    stage.script.event(UNTOUCHED.lost_npu().try_into().unwrap(), HBM, 3, 1, "a fault");
    fault_to_outcome(cluster, &stage.clusterd, &stage.leader, &job).await;
    stage.expect(&job, true, &["DumpSucceeded"]).await;
    let logs = job.logs(cluster).await;
    for part in [
        "libtaskd=/srv/py/lib/python3.11/dist-packages/taskd",
        "swansong launcher hook: imported taskd.python.adaptor.patch",
        "swansong launcher hook: active",
        "swansong manager: the TaskD Manager runs",
        "swansong manager: no processor that may be saving is connected",
    ] {
        assert!(logs.contains(part), "{part}:\n{logs}");
    }
    zero_touch(cluster, "{}\n").await;
    others.push(job);
    stage.stop(&others).await;
}

/// The checks of a job that doctor doesn't pass, each with what it saw.
async fn not_passed(cluster: &Cluster, job: &Training) -> Result<Vec<(String, String)>, String> {
    let mut doctor = tokio::process::Command::new(env!("CARGO_BIN_EXE_swansong"));
    doctor.args(["doctor", job.job.name, "--namespace", &job.namespace, "--output", "json"]);
    let output = doctor.env("KUBECONFIG", cluster.kubeconfig()).output().await;
    let output = output.map_err(|error| error.to_string())?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let text = |check: &serde_json::Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    let checks = report["checks"].as_array().into_iter().flatten();
    let not_passed = checks.filter(|check| check["status"] != "pass");
    Ok(not_passed.map(|check| (text(check, "check"), text(check, "seen"))).collect())
}

/// Writes the webhook's configuration, and waits until it applies to a Pod of the job's namespace.
async fn zero_touch(cluster: &Cluster, config: &str) {
    let patch = serde_json::json!({"data": {"config.yaml": config}}).to_string();
    let arguments = ["--namespace=swansong-system", "patch", "configmap/swansong-config", "--patch", &patch];
    cluster.kubectl(&arguments).await.unwrap();
    let namespace = cluster.namespace("zero-touch-probe").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let pod = serde_json::json!({
        "metadata": {"name": "probe", "annotations": {"recover-strategy": "dump"}},
        "spec": {"containers": [{"name": "ascend", "image": python_image::UNUSUAL_NAME}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let is_on = config.starts_with("zero");
    // The kubelet updates the ConfigMap's files within about a minute, each replica's by itself.
    let mut right = 0;
    eventually("both replicas have the configuration", Duration::from_mins(3), || {
        let (pods, pod, parameters) = (pods.clone(), pod.clone(), parameters.clone());
        right += 1;
        let times = right;
        async move {
            for _ in 0..8 {
                let stored = pods.create(&parameters, &pod).await.map_err(|error| error.to_string())?;
                let spec = stored.spec.unwrap_or_default();
                if spec.init_containers.is_some_and(|list| list.len() == 2) != is_on {
                    return Err(format!("attempt {times}: not yet"));
                }
            }
            Ok(())
        }
    })
    .await
    .unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client().await.unwrap());
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
}

/// Swansong by its manifests, a host with NPUs, and both fakes of ClusterD.
pub(super) struct Stage {
    pub(super) cluster: &'static Cluster,
    pub(super) clusterd: Arc<FakeClusterd>,
    watching: tokio::task::JoinHandle<()>,
    pub(super) leader: Leader,
    pub(super) script: Script,
    agents: Agents,
    _host: Host,
}

impl Stage {
    pub(super) async fn start(cluster: &'static Cluster, image: &Path) -> Self {
        let client = cluster.client().await.unwrap();
        prepare(cluster).await;
        cluster.load_image(image).await.unwrap();
        // On an address that pods reach.
        let address = IpAddr::from(cluster.info().node.as_ref().unwrap().host_address);
        let clusterd =
            FakeClusterd::start_at(SocketAddr::new(address, 0), Settings::default(), Clock::running())
                .await
                .unwrap();
        let clusterd = Arc::new(clusterd);
        let watching = tokio::spawn(swansong_fake_clusterd::cluster::run(client, Arc::clone(&clusterd)));
        let leader = Leader::start(address, TIME_FACTOR).unwrap();
        set_npus(cluster, 16).await;
        let host = Host::healthy(Family::A3);
        let libraries = host.path(&format!("{DRIVER}/lib64/driver"));
        std::fs::remove_file(libraries.join("libdcmi.so")).unwrap();
        let script = Script::beside(&build(&libraries));
        for card in 0..8 {
            script.card(card, 2);
        }
        let config = format!(
            "npus: 16\npreload: {{grace: 2s, interval: 2s}}\ndriver: {{trust: anyone}}\nclusterd: {{dial: false, address: \"{}\"}}\nfaults: {{settle: 1s}}\n",
            clusterd.address()
        );
        let agents = Agents::start(cluster, "overlays/agent-fast-dump", &host.path("/"), &config).await;
        Self { cluster, clusterd, watching, leader, script, agents, _host: host }
    }

    /// Whether the job left a file, and what the agent says of its dump.
    pub(super) async fn expect(&self, job: &Training, has_file: bool, reasons: &[&str]) {
        let logs = job.logs(self.cluster).await;
        assert_eq!(job.checkpoint().is_some(), has_file, "{}:\n{logs}", job.job.name);
        let client = self.cluster.client().await.unwrap();
        let known = expect_events(&client, &job.namespace, "AscendJob", job.job.name, reasons).await;
        if let Err(error) = known {
            panic!("{}: {error}\n{logs}\n{}", job.job.name, self.agents.logs().await);
        }
    }

    pub(super) async fn stop(self, jobs: &[Training]) {
        self.watching.abort();
        self.agents.stop().await;
        set_npus(self.cluster, 8).await;
        let namespaces: Api<Namespace> = Api::all(self.cluster.client().await.unwrap());
        for job in jobs {
            namespaces.delete(&job.namespace, &DeleteParams::default()).await.unwrap();
        }
    }
}

async fn set_npus(cluster: &Cluster, count: u32) {
    let npus = serde_json::json!({"huawei.com/Ascend910": count.to_string()});
    let patch = Patch::Merge(serde_json::json!({"status": {"capacity": npus, "allocatable": npus}}));
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    nodes.patch_status(cluster.node_name().unwrap(), &PatchParams::default(), &patch).await.unwrap();
}

/// Passes the agent's fault on to the ClusterD that orders the dump, and waits for the end of the job.
pub(super) async fn fault_to_outcome(
    cluster: &Cluster,
    clusterd: &FakeClusterd,
    leader: &Leader,
    job: &Training,
) {
    let npu = job.job.lost_npu();
    eventually(&format!("ClusterD ends the rank on NPU {npu}"), TIMEOUT, || async {
        let kills = clusterd.with(|core, _| core.ledger().kills.clone());
        let has_it = kills.iter().any(|kill| kill.devices.contains(&npu));
        if has_it { Ok(()) } else { Err(format!("{kills:?}")) }
    })
    .await
    .unwrap();
    leader.send(&serde_json::json!({"device_fault": job.uid, "ranks": [job.job.lost_rank]})).unwrap();
    job.fail_with_first_pod(cluster.client().await.unwrap(), leader).await.unwrap();
}
