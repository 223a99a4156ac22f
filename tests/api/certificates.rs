//! The self-managed certificate against the real API server: one authority however many replicas, `caBundle` set,
//! and reviews that really pass through the Service with it.

use std::time::Duration;

use serde_json::{Value, json};
use swansong_testcluster::eventually;

use crate::support::{Webhook, asking_pod, configuration, create, rig, swansong};

/// An address of this machine that the API server may dial for a Service; loopback is refused in endpoints.
fn own_address() -> std::net::IpAddr {
    // No packet is sent: connecting a datagram socket only chooses the route's source address.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

#[tokio::test]
async fn two_replicas_make_one_authority_and_serve_through_the_service() {
    let rig = rig().await;
    let cluster = rig.cluster;
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("selfmanaged").await.unwrap();
    let watched = cluster.namespace("watched").await.unwrap();
    let service = json!({"service": {"namespace": namespace, "name": "swansong-webhook", "path": "/mutate", "port": 443}});
    let only_there = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": watched}},
        // The other webhooks of this cluster would inject as well.
        "failurePolicy": "Fail",
    });
    let name = "self-managed";
    create(&client, "", configuration(cluster, name, &service, &only_there).await).await.unwrap();

    let start = || {
        let mut command = swansong([
            "webhook",
            "--listen",
            "0.0.0.0:0",
            "--health-listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ]);
        command
            .args(["--namespace", &namespace, "--webhook-configuration", name])
            .env("KUBECONFIG", cluster.kubeconfig());
        Webhook::start(&command)
    };
    let replicas = std::thread::scope(|scope| {
        [scope.spawn(start), scope.spawn(start)].map(|replica| replica.join().unwrap())
    });
    let endpoints: Vec<_> = replicas
        .iter()
        .map(|replica| replica.address.rsplit(':').next().unwrap().parse::<u16>().unwrap())
        .collect();

    let get = async |resource: &str| -> Result<Value, String> {
        let text = cluster
            .kubectl(&["get", "-n", &namespace, resource, "-o", "json"])
            .await
            .map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    };
    let authority = eventually("caBundle and Secret to agree", Duration::from_secs(30), || async {
        let secret = get("secret/swansong-webhook-tls").await?;
        let configuration = get(&format!("mutatingwebhookconfiguration/{name}")).await?;
        let authority = secret["data"]["ca.crt"].as_str().unwrap_or_default().to_owned();
        let webhooks = configuration["webhooks"].as_array().cloned().unwrap_or_default();
        let agree = !authority.is_empty()
            && webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == *authority);
        if agree { Ok(authority) } else { Err("not yet".to_owned()) }
    })
    .await
    .unwrap();

    // Each replica in turn is the only endpoint, so that each is proven to serve under the one authority.
    create(&client, &namespace, json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "swansong-webhook"}, "spec": {"ports": [{"port": 443, "name": "https"}]}})).await.unwrap();
    for (number, port) in endpoints.into_iter().enumerate() {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("replica-{number}"), "labels": {"kubernetes.io/service-name": "swansong-webhook"}},
            "endpoints": [{"addresses": [own_address()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        });
        create(&client, &namespace, slice).await.unwrap();
        let attempt = std::cell::Cell::new(0);
        eventually("the Service to answer", Duration::from_secs(30), || async {
            attempt.set(attempt.get() + 1);
            let pod = asking_pod(
                &format!("p-{number}-{}", attempt.get()),
                &json!([{"name": "ascend", "image": "x"}]),
            );
            create(&client, &watched, pod).await.map_err(|error| error.to_string())
        })
        .await
        .unwrap();
        cluster
            .kubectl(&["delete", "-n", &namespace, "endpointslice", &format!("replica-{number}")])
            .await
            .unwrap();
    }

    // Restarted replicas find what is there and make nothing new.
    drop(replicas);
    let again = start();
    let secret = get("secret/swansong-webhook-tls").await.unwrap();
    assert_eq!(secret["data"]["ca.crt"], authority.as_str());
    drop(again);
}
