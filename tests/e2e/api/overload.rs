//! A webhook without room, as a real API server meets it: the object is created in time, as it is, and can be found.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use swansong_testcluster::eventually;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{Certificate, Webhook, asking_pod, configuration, create, creation, rig};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Takes all the room there is, and keeps it until it is dropped.
async fn hog(webhook: &Webhook, tls: Arc<rustls::ClientConfig>) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(&webhook.address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(tls).connect(name, stream).await.unwrap();
    let head = format!("POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 8 << 20);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[b' '; 8 << 10]).await.unwrap();
    stream.flush().await.unwrap();
    eventually("the room to be taken", TIMEOUT, || async { room_is(webhook, 8.0 * 1024.0 * 1024.0) })
        .await
        .unwrap();
    stream
}

fn room_is(webhook: &Webhook, bytes: f64) -> Result<(), String> {
    let now = webhook.metric("swansong_large_body_bytes").unwrap_or(f64::NAN);
    if (now - bytes).abs() < 0.5 { Ok(()) } else { Err(format!("{now} bytes")) }
}

/// A Pod whose review doesn't pass as small.
async fn create_large(client: &Client, namespace: &str, name: &str) -> Value {
    let blob = "x".repeat(1_000_000);
    let container = json!({"name": "ascend", "image": "x", "env": [{"name": "BLOB", "value": blob}]});
    create(client, namespace, asking_pod(name, &json!([container]))).await.unwrap()
}

fn is_injected(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["env"].to_string().contains("libtaskd.so")
}

#[tokio::test]
async fn what_there_is_no_room_for_is_created_as_it_is_and_noted() {
    let cluster = rig().await.cluster;
    let client = cluster.client().await.unwrap();
    let namespace = cluster.namespace("overload").await.unwrap();
    // Out of reach of the webhook that the other tests share.
    let label = ["label", "namespace", &namespace, "swansong.dev/inject=false"];
    cluster.kubectl(&label).await.unwrap();

    let certificate = Certificate::new();
    let mut command = certificate.webhook();
    // The API server's own 5 s are what counts; the hog has an hour.
    command.args(["--body-memory", "8", "--review-timeout", "1h"]);
    let webhook = Webhook::start(&command);
    let client_config = certificate.client_config(&webhook);
    let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
    create(&client, "", configuration(cluster, "overload", &client_config, &here).await).await.unwrap();
    let number = std::cell::Cell::new(0);
    eventually("the webhook to be called", TIMEOUT, || async {
        number.set(number.get() + 1);
        let pod = asking_pod(&format!("probe-{}", number.get()), &json!([{"name": "ascend", "image": "x"}]));
        let stored = create(&client, &namespace, pod).await.map_err(|error| error.to_string())?;
        if is_injected(&stored) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await
    .unwrap();

    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.issued.der().clone()).unwrap();
    let tls = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
        .with_root_certificates(roots)
        .with_no_client_auth();
    let hog = hog(&webhook, Arc::new(tls)).await;
    assert!(!is_injected(&create_large(&client, &namespace, "without-room").await));
    let event = creation(cluster, &namespace, "without-room").expect("an audit event");
    let note = |key: &str| event.annotations.get(key).map(String::as_str);
    // An answer that the API server took, not one that it missed.
    assert_eq!(note("pods.swansong.dev/failed"), Some("Overloaded"), "{:?}", event.annotations);
    assert!(event.annotations.keys().all(|key| !key.starts_with("failed-open.")), "{:?}", event.annotations);
    assert_eq!(webhook.metric(r#"swansong_reviews_unprocessed_total{reason="Overloaded"}"#), Some(1.0));

    drop(hog);
    eventually("the room to be free", TIMEOUT, || async { room_is(&webhook, 0.0) }).await.unwrap();
    assert!(is_injected(&create_large(&client, &namespace, "with-room").await));
    cluster.kubectl(&["delete", "mutatingwebhookconfiguration", "overload"]).await.unwrap();
}
