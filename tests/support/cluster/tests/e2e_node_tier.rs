//! The tier with a node.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::Api;
use kube::api::{LogParams, PostParams};
use serde_json::{Value, json};
use swansong_testcluster::image::ImageBuilder;
use swansong_testcluster::{Cluster, Tier, eventually, programs, shared_if_possible};

const TIMEOUT: Duration = Duration::from_mins(1);

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Makes an image, loads it and returns its name. Images outlive namespaces, so names differ.
async fn load(cluster: &Cluster, name: &str, build: impl FnOnce(ImageBuilder) -> ImageBuilder) -> String {
    let name = format!("localhost/{name}:test");
    let folder = tempfile::tempdir().unwrap();
    let tar = folder.path().join("image.tar");
    build(ImageBuilder::new(&name)).write(&tar).unwrap();
    cluster.load_image(&tar).await.unwrap();
    name
}

async fn phase(pods: &Api<Pod>, name: &str, wanted: &str) {
    eventually(&format!("pod {name} is {wanted}"), TIMEOUT, || async {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let status = pod.status.unwrap_or_default();
        if status.phase.as_deref() == Some(wanted) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_pod_reaches_the_api_server_by_its_service() {
    let Some(cluster) = shared_if_possible(Tier::Node).await.unwrap() else { return };
    let image = load(cluster, "in-pod", |image| {
        image.program(Path::new(env!("CARGO_BIN_EXE_in_pod")), "/in_pod").unwrap().entrypoint(["/in_pod"])
    })
    .await;
    let namespace = cluster.namespace("reach").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let version = programs::version();
    for (name, host_network) in [("own-network", false), ("host-network", true)] {
        let pod = object(json!({
            "metadata": { "name": name },
            "spec": {
                "restartPolicy": "Never",
                "hostNetwork": host_network,
                "containers": [{
                    "name": "main", "image": image, "imagePullPolicy": "Never",
                    "resources": { "limits": { "huawei.com/Ascend910": "2" } },
                }],
            },
        }));
        pods.create(&PostParams::default(), &pod).await.unwrap();
        phase(&pods, name, "Succeeded").await;
        // Also shows that the API server reaches the kubelet.
        assert_eq!(pods.logs(name, &LogParams::default()).await.unwrap().trim(), version);
    }
}

#[tokio::test]
async fn a_service_leads_to_its_pods() {
    let Some(cluster) = shared_if_possible(Tier::Node).await.unwrap() else { return };
    let kubectl = cluster.info().kubectl.clone();
    let image = load(cluster, "serves", |image| {
        image.program(&kubectl, "/kubectl").unwrap().entrypoint(["/kubectl"])
    })
    .await;
    let namespace = cluster.namespace("service").await.unwrap();
    let client = cluster.client().await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let pod = object(json!({
        "metadata": { "name": "server", "labels": { "app": "server" } },
        "spec": { "containers": [{
            "name": "main", "image": image, "imagePullPolicy": "Never",
            "args": ["proxy", "--address=0.0.0.0", "--port=8080", "--accept-hosts=.*"],
        }] },
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let service = object(json!({
        "metadata": { "name": "server" },
        "spec": { "selector": { "app": "server" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    }));
    let service = services.create(&PostParams::default(), &service).await.unwrap();
    phase(&pods, "server", "Running").await;

    // The way of the API server to a webhook behind a Service.
    let path = format!("/api/v1/namespaces/{namespace}/services/server:80/proxy/version");
    eventually("the API server reaches the Service", TIMEOUT, || {
        client.request_text(http::Request::get(&path).body(Vec::new()).unwrap())
    })
    .await
    .unwrap();
    // All other clients use kube-proxy.
    let address = service.spec.unwrap().cluster_ip.unwrap();
    eventually("this process reaches the Service", TIMEOUT, || {
        tokio::net::TcpStream::connect((address.as_str(), 80))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn volumes_on_the_host_leave_the_machines_disk_alone() {
    let Some(cluster) = shared_if_possible(Tier::Node).await.unwrap() else { return };
    let image = load(cluster, "on-host", |image| {
        image.program(Path::new(env!("CARGO_BIN_EXE_in_pod")), "/in_pod").unwrap().entrypoint(["/in_pod"])
    })
    .await;
    let namespace = cluster.namespace("host-path").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.unwrap(), &namespace);
    let name = format!("test-{}", std::process::id());
    let pod = |pod: &str, path: &str| {
        object(json!({
            "metadata": { "name": pod },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": image, "imagePullPolicy": "Never",
                    "volumeMounts": [{ "name": "host", "mountPath": "/host" }],
                }],
                "volumes": [{ "name": "host", "hostPath": { "path": path, "type": "DirectoryOrCreate" } }],
            },
        }))
    };
    let outside = format!("/usr/{name}");
    pods.create(&PostParams::default(), &pod("outside", &outside)).await.unwrap();
    let own = format!("/var/lib/swansong/{name}");
    pods.create(&PostParams::default(), &pod("own", &own)).await.unwrap();
    phase(&pods, "own", "Succeeded").await;
    assert!(cluster.info().directory.join("node/swansong").join(&name).is_dir());
    swansong_testcluster::expect_events(
        &cluster.client().await.unwrap(),
        &namespace,
        "Pod",
        "outside",
        &["FailedMount"],
    )
    .await
    .unwrap();
    assert!(!Path::new(&outside).exists() && !Path::new(&own).exists());
}

#[tokio::test]
async fn the_node_has_npus() {
    let Some(cluster) = shared_if_possible(Tier::Node).await.unwrap() else { return };
    let nodes: Api<Node> = Api::all(cluster.client().await.unwrap());
    let node = nodes.get(cluster.node_name().unwrap()).await.unwrap();
    let allocatable = node.status.unwrap().allocatable.unwrap();
    assert_eq!(allocatable["huawei.com/Ascend910"].0, "8");
}
