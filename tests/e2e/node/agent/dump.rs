//! From a fault of a device to a checkpoint on disk: Swansong by its manifests, training jobs of fakes in Pods.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};
use swansong_agent::checks::Family;
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::{FakeClusterd, Settings};
use swansong_fake_dcmi::{Script, build};
use swansong_fixtures::host::{DRIVER, Host};
use swansong_testcluster::{Cluster, eventually, expect_events};

use super::faults::{HBM, prepare};
use super::rig::{Agents, TIMEOUT, alone};
use super::training::{Job, Leader, Training};
use crate::python_image;

/// Without it, the order to exit isn't delayed.
const UNPROTECTED: (&str, &str) = ("swansong.dev/protect-dump", "false");

/// The agent ends the rank on a device that has dropped.
const FAST: (&str, &str) = ("swansong.dev/fast-dump", "true");
/// A device that has dropped.
const DROPPED: u32 = 0x40F8_4E00;

const JOBS: [Job; 4] = [
    // The node of rank 0 isn't hit.
    Job { name: "two-pods", first_npu: 0, lost_rank: 1, ..TWO_PODS },
    Job { name: "one-pod", pods: 1, npus_per_pod: 2, first_npu: 2, save_seconds: 300, ..TWO_PODS },
    Job { name: "unprotected", first_npu: 4, annotations: &[UNPROTECTED], ..TWO_PODS },
    Job { name: "fast", first_npu: 6, annotations: &[FAST], ..TWO_PODS },
];
/// The lost rank is the first of its group.
const TWO_PODS: Job = Job {
    name: "",
    pods: 2,
    npus_per_pod: 1,
    first_npu: 0,
    lost_rank: 0,
    annotations: &[],
    save_seconds: 10,
};

#[tokio::test]
async fn device_faults_of_jobs_in_one_second_end_in_checkpoints_and_known_outcomes() {
    let Some((_turn, cluster)) = alone().await else { return };
    let client = cluster.client().await.unwrap();
    let node = cluster.node_name().unwrap().to_owned();
    prepare(cluster, &node).await;
    let folder = tempfile::tempdir().unwrap();
    cluster.load_image(&python_image::build(folder.path())).await.unwrap();

    // On an address that pods reach.
    let address = IpAddr::from(cluster.info().node.as_ref().unwrap().host_address);
    let clusterd = FakeClusterd::start_at(SocketAddr::new(address, 0), Settings::default(), Clock::running())
        .await
        .unwrap();
    let clusterd = Arc::new(clusterd);
    let watching = tokio::spawn(swansong_fake_clusterd::cluster::run(client.clone(), Arc::clone(&clusterd)));
    let leader = Leader::start(address);

    let host = Host::healthy(Family::A2);
    let libraries = host.path(&format!("{DRIVER}/lib64/driver"));
    std::fs::remove_file(libraries.join("libdcmi.so")).unwrap();
    let script = Script::beside(&build(&libraries));
    let config = format!(
        "npus: 8\ndriver: {{trust: anyone}}\nclusterd: {{dial: false, address: \"{}\"}}\nfaults: {{settle: 1s}}\n",
        clusterd.address()
    );
    let agents = Agents::start(cluster, "overlays/agent-fast-dump", &host.path("/"), &config).await;
    let starts = JOBS.map(|job| Training::start(cluster, &leader, folder.path(), job));
    let jobs = futures::future::join_all(starts).await;

    for job in &jobs {
        let code = if job.job.annotations == [FAST] { DROPPED } else { HBM };
        script.event(job.job.lost_npu().try_into().unwrap(), code, 3, 1, "a fault");
    }
    let saving = jobs.iter().map(|job| fault_to_outcome(cluster, &clusterd, &leader, job));
    futures::future::join_all(saving).await;
    for job in &jobs {
        let (has_file, reasons) = match job.job.annotations {
            [UNPROTECTED] => (false, &["DumpOutcomeUnknown"][..]),
            [FAST] => (true, &["RankEnded", "DumpSucceeded"][..]),
            _ => (true, &["DumpSucceeded"][..]),
        };
        let logs = job.logs(cluster).await;
        assert_eq!(job.has_file(), has_file, "{}:\n{logs}", job.job.name);
        let known = expect_events(&client, &job.namespace, "AscendJob", job.job.name, reasons).await;
        if let Err(error) = known {
            panic!("{}: {error}\n{logs}\n{}", job.job.name, agents.logs().await);
        }
    }

    watching.abort();
    agents.stop().await;
    let namespaces: Api<Namespace> = Api::all(client);
    for job in &jobs {
        namespaces.delete(&job.namespace, &DeleteParams::default()).await.unwrap();
    }
}

/// Passes the agent's fault on to the ClusterD that orders the dump, and waits for the end of the job.
async fn fault_to_outcome(cluster: &Cluster, clusterd: &FakeClusterd, leader: &Leader, job: &Training) {
    let npu = job.job.lost_npu();
    eventually(&format!("ClusterD ends the rank on NPU {npu}"), TIMEOUT, || async {
        let kills = clusterd.with(|core, _| core.ledger().kills.clone());
        let has_it = kills.iter().any(|kill| kill.devices.contains(&npu));
        if has_it { Ok(()) } else { Err(format!("{kills:?}")) }
    })
    .await
    .unwrap();
    leader.send(&serde_json::json!({"device_fault": job.uid, "ranks": [job.job.lost_rank]}));
    job.fail_with_first_pod(cluster.client().await.unwrap(), leader).await;
}
