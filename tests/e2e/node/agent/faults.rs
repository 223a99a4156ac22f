//! A fault of a device that a pod uses, from the driver's library to ClusterD: agent and webhook by their manifests, a
//! real pod, a libdcmi.so and a ClusterD without NPUs.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use swansong_agent::checks::Family;
use swansong_demo::training_image::{self, PROGRAM};
use swansong_demo::{agents, definitions, install, operator};
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::{FakeClusterd, Settings};
use swansong_fake_dcmi::{Script, build};
use swansong_testcluster::{Cluster, eventually};

use super::rig::{Agents, TIMEOUT, alone};
use swansong_fixtures::host::{DRIVER, Host};
use swansong_fixtures::mindcluster::{job_summary, pod_group, pod_metadata};
use swansong_testcluster::expect_events;

pub(super) const HBM: u32 = 0x80E0_1801;

#[tokio::test]
async fn a_fault_ends_as_one_that_clusterd_took_and_its_end_follows() {
    let Some((_turn, cluster)) = alone().await else { return };
    let client = cluster.client().await.unwrap();
    let node = cluster.node_name().unwrap().to_owned();
    prepare(cluster).await;

    // On an address that pods reach.
    let address = SocketAddr::from((cluster.info().node.as_ref().unwrap().host_address, 0));
    let clusterd =
        Arc::new(FakeClusterd::start_at(address, Settings::default(), Clock::running()).await.unwrap());
    let watching = tokio::spawn(swansong_fake_clusterd::cluster::run(client.clone(), Arc::clone(&clusterd)));

    let host = Host::healthy(Family::A2);
    let libraries = host.path(&format!("{DRIVER}/lib64/driver"));
    std::fs::remove_file(libraries.join("libdcmi.so")).unwrap();
    let script = Script::beside(&build(&libraries));
    let config = format!(
        "npus: 8\ndriver: {{trust: anyone}}\nclusterd: {{dial: false, address: \"{}\"}}\n\
         faults: {{settle: 1s}}\n",
        clusterd.address()
    );
    let agents = Agents::start(cluster, "overlays/agent-faults", &host.path("/"), &config).await;
    let namespace = job(cluster, &client).await;

    // The reset-config controller creates it before the fault.
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let reset = eventually("the reset ConfigMap", TIMEOUT, || async {
        maps.get("reset-config-bert").await.map_err(|error| error.to_string())
    });
    let reset = reset.await.unwrap();

    script.event(3, HBM, 3, 1, "HBM multi-bit error");
    accepted(&clusterd, &agents, &["occur"]).await;
    clusterd.with(|core, _| {
        let ledger = core.ledger();
        let first = &ledger.accepted[0];
        assert_eq!((first.node.as_str(), first.devices.as_slice()), (node.as_str(), &[3][..]));
        assert_eq!((ledger.kills.len(), ledger.misdirected.len(), ledger.dropped.len()), (1, 0, 0));
        let made = reset.metadata.creation_timestamp.as_ref().unwrap().0.as_millisecond();
        assert!(made <= i64::try_from(first.at).unwrap());
    });
    expect_events(&client, &namespace, "Pod", "bert-master-0", &["DeviceFault", "FaultRelayed"])
        .await
        .unwrap();
    expect_events(&client, &namespace, "AscendJob", "bert", &["FaultRelayed"]).await.unwrap();

    script.event(3, HBM, 3, 0, "HBM multi-bit error");
    accepted(&clusterd, &agents, &["occur", "recover"]).await;
    expect_events(
        &client,
        "default",
        "Node",
        &node,
        &["DeviceFault", "FaultRelayed", "DeviceFaultEnded", "FaultRecoveryRelayed"],
    )
    .await
    .unwrap();

    watching.abort();
    agents.stop().await;
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.delete(&namespace, &kube::api::DeleteParams::default()).await.unwrap();
}

/// What other parts of the cluster bring along, and the webhook with its reset-config controller.
pub(super) async fn prepare(cluster: &Cluster) {
    definitions::apply(cluster, &definitions::file()).await.unwrap();
    agents::prepare(cluster).await.unwrap();
    install::install(cluster).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    cluster.load_image(&training_image::build(folder.path()).unwrap()).await.unwrap();
}

/// A job that dumps, with one running pod that holds device 3; its namespace.
async fn job(cluster: &Cluster, client: &Client) -> String {
    let namespace = cluster.namespace("faults").await.unwrap();
    let jobs = operator::ascend_jobs(client.clone(), &namespace);
    let job: DynamicObject = serde_json::from_value(crate::rig::job("bert", "pytorch", "dump", &[])).unwrap();
    let job = jobs.create(&PostParams::default(), &job).await.unwrap();
    let mut metadata = pod_metadata(&job.uid().unwrap());
    metadata["namespace"] = json!(namespace);
    let mut others = vec![pod_group(), job_summary()];
    for object in &mut others {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "ascend", "image": training_image::NAME, "imagePullPolicy": "Never",
            "command": [PROGRAM, "--stay"]}],
    }});
    let all: Vec<String> = others.iter().chain([&pod]).map(Value::to_string).collect();
    cluster.apply(&all.join("\n---\n")).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    eventually("the job's pod runs", TIMEOUT, || async {
        let pod = pods.get("bert-master-0").await.map_err(|error| error.to_string())?;
        let phase = pod.status.and_then(|status| status.phase);
        if phase.as_deref() == Some("Running") { Ok(()) } else { Err(format!("{phase:?}")) }
    })
    .await
    .unwrap();
    namespace
}

async fn accepted(clusterd: &FakeClusterd, agents: &Agents, assertions: &[&str]) {
    let what = format!("ClusterD has accepted {assertions:?}");
    let accepted = eventually(&what, TIMEOUT, || async {
        let accepted = clusterd.with(|core, _| core.ledger().accepted.clone());
        let now: Vec<&str> = accepted.iter().map(|accepted| accepted.assertion.as_str()).collect();
        if now == assertions { Ok(()) } else { Err(format!("{accepted:?}")) }
    });
    if let Err(error) = accepted.await {
        let logs = agents.logs().await;
        panic!("{error}\n{:?}\n{logs}", agents.status().await.map(|status| status["faults"].clone()));
    }
}
